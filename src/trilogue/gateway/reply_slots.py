# ruff: noqa: ERA001 -- the next line is for the compiler
# cython: annotation_typing=False
"""The slots of replies: each request that is answered has one, in the order of the requests.

Compiled (reply_slots.pxd adds the types), since every small produce request uses both classes;
uncompiled it is plain Python. See docs/decisions/0061. How the slots are emptied is in
reply_queue.py.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trilogue.gateway.stream import Buffer
    from trilogue.gateway.telemetry.request_latency import RequestTimer


class ReplySlot:
    """The slot of one reply in the order; some kinds hold several replies.

    `waiting_bytes` is the memory that it takes while other slots are before it: a reply, or a
    request to be handled later. `timer` measures a request (request_latency.py), if it is one of
    those that are measured.
    """

    __slots__ = ("ready", "requests", "timer", "waiting_bytes")

    def __init__(self) -> None:
        self.ready = False
        self.requests = 1
        self.timer: RequestTimer | None = None
        self.waiting_bytes = 0

    def render(self) -> list[Buffer] | None:
        """Return the bytes to send, at the head of the queue; None = not yet.

        After None, `ready` is set again later.
        """
        raise AssertionError("a slot of this kind is never ready")

    def hurry(self) -> None:
        """Stop waiting for more data, if the slot waits for no other reason: the server drains."""

    def abandon(self) -> None:
        """Release what the slot waits for: the connection is closed."""


class ReplySlots:
    """The slots of one connection, how many requests are in flight, and what stops it."""

    __slots__ = ("in_flight", "is_draining", "is_full", "is_gone", "queue")

    def __init__(self) -> None:
        self.queue: deque[ReplySlot] = deque()
        self.in_flight = 0  # requests without a reply that was sent
        self.is_full = False  # whether so much is in flight that no more requests are taken
        self.is_draining = False  # whether the connection closes after the last reply
        self.is_gone = False  # whether the connection is closed
