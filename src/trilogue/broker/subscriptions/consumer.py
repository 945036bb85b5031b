"""One connected consumer of a subscription: its permits, and its messages that are not acked.

`demand` is its permits: how many more messages it accepts. An entry is never split, so a large
one may bring it below zero; then the consumer gets nothing until its demand is positive again.

    Flow         demand += n          handed out    demand -= messages, unacked += messages
    acked        unacked -= messages  given back    unacked -= messages, `handed` forgets it
"""

from __future__ import annotations

from typing import Final

import msgspec

DEMAND_MAX: Final = 2**31 - 1  # larger requests are cut to this
NO_EPOCH: Final = -1
KEYLESS: Final = -1


class PendingAck:
    """An entry that a member has and has not acked."""

    __slots__ = ("end", "key", "left")

    def __init__(self, end: int, key: int, left: int) -> None:
        self.end = end  # the offset after its last message
        self.key = key  # what its place was found by; KEYLESS if nothing was
        self.left = left  # messages that are not acked


class SubscriptionConsumer(msgspec.Struct, eq=False):
    """A reader with its demand. Who made it may derive from it; nothing here looks beyond."""

    name: str
    priority: int = 0  # lower comes first
    ranges: tuple[tuple[int, int], ...] | None = None  # slots it wants for itself (key-shared)
    out_of_order: bool = False  # keys may move while another consumer has unacked messages of them
    epoch: int = NO_EPOCH  # what it calls its own incarnation
    joined: int = 0  # a number that no later member of the subscription has
    demand: int = 0
    unacked: int = 0  # messages, of shared kinds only
    blocked: bool = False  # has too much unacked
    waits: bool = False  # cannot be sent anything now, whatever it demands
    handed: dict[int, PendingAck] = msgspec.field(
        default_factory=dict
    )  # by base offset, of shared kinds only
    messages_out: int = 0
    bytes_out: int = 0
    entries_out: int = 0
    redelivered: int = 0  # messages
    acked: int = 0  # messages

    def add_demand(self, count: int) -> None:
        """Take note that it will take so many messages more."""
        self.demand = min(self.demand + max(0, count), DEMAND_MAX)

    @property
    def ready(self) -> bool:
        """Whether it may be handed something."""
        return self.demand > 0 and not self.blocked and not self.waits
