"""What groups of all kinds have in common: the face by which doors and the registry know them.

Two kinds exist. Members of a classic group make the assignment themselves (group.py); those of a
consumer group get theirs from the broker (KIP-848). A consumer group may have members that still
speak as classic ones do, so the questions of classic members are part of the face.

What classic members say of themselves is opaque bytes here (Kafka's `Subscription` blob). Whoever
brings the broker to life may give it a reader of them; without one nobody knows their topics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple
from typing import Protocol as Port

from trilogue.broker.group_members import Joined, JoinRequest, Synced
from trilogue.broker.names import TopicName
from trilogue.broker.promise import Promise

CLASSIC, CONSUMER = "classic", "consumer"  # kinds of groups, as administration tools show them
CONSUMER_PROTOCOL = "consumer"  # the protocol type of groups whose members read topics


class Wishes(NamedTuple):
    """What a classic member of protocol type `consumer` says beside a protocol."""

    topics: frozenset[TopicName]
    owned: tuple[tuple[TopicName, tuple[int, ...]], ...] = ()  # partitions by their numbers
    generation: int = -1  # in which it owned them
    rack: str | None = None
    user_data: bytes = b""


ReadWishes = Callable[[bytes], Wishes | None]


def unread(_: bytes) -> Wishes | None:
    """Read nothing: no door has said how."""
    return None


class AnyGroup(Port):
    """A group of either kind. Everything after `forget` is asked by its members, or for them.

    Each call raises (or its promise is broken with) what the member must know: UnknownMember,
    FencedInstance, IllegalGeneration, RebalanceInProgress, InconsistentProtocol...
    """

    name: str

    protocol_type: (
        str  # CONSUMER_PROTOCOL, or what the classic members of another kind say; "" none
    )

    @property
    def type(self) -> str:
        """CLASSIC or CONSUMER."""

    @property
    def state_name(self) -> str:
        """The state in the words of administration tools: Empty, Stable, Assigning..."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""

    def subscribes_to(self, topic: TopicName) -> bool:
        """Whether some member reads the topic, so that its positions must stay."""

    def reading(self) -> Callable[[TopicName], bool]:
        """Answer `subscribes_to` for many topics, as of this moment."""

    def forget(self) -> None:
        """End an empty group."""

    def join(self, request: JoinRequest) -> Promise[Joined]:
        """Become or stay a classic member."""

    def sync(
        self,
        member_id: str,
        generation: int,
        instance_id: str | None = None,
        *,
        assignments: Mapping[str, bytes] | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> Promise[Synced]:
        """Bring or get the assignment of a classic member."""

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> None:
        """Hear that a classic member lives."""

    def leave(self, member_id: str, instance_id: str | None = None) -> None:
        """Let a member go, by its id or, for a static one, by its instance alone."""

    def check_commit(self, member_id: str, generation: int, instance_id: str | None = None) -> None:
        """Refuse a commit; `generation` is the member's epoch in a consumer group."""

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Refuse to tell positions to a member that is none, or is behind (OffsetFetch v9)."""
