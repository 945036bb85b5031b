"""The interface of a Kafka group of any kind, as the gateway and the registry know it.

Members of a classic group compute the assignment themselves (broker/groups/classic/group.py); those
of a consumer group get theirs from the broker (KIP-848). A consumer group may have members that
speak the classic protocol, so the requests of classic members are part of the interface. Share
groups (KIP-932) and streams groups (KIP-1071) refuse them.

The subscription of a classic member is opaque bytes here (Kafka's `Subscription`). The broker has
a decoder that it got at construction; without one the topics of classic members are unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from typing import Protocol as Port

from trilogue.broker.errors import BrokerError
from trilogue.broker.groups.classic.members import JoinRequest, JoinResult, SyncResult
from trilogue.broker.names import TopicName
from trilogue.broker.promise import Promise

# kinds of groups, as administration tools show them
CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
CONSUMER_PROTOCOL = "consumer"  # the protocol type of groups whose members read topics


class MemberSubscription(NamedTuple):
    """The decoded subscription of a classic member of protocol type `consumer`."""

    topics: frozenset[TopicName]
    owned: tuple[tuple[TopicName, tuple[int, ...]], ...] = ()  # partitions by their numbers
    generation: int = -1  # in which it owned them
    rack: str | None = None
    user_data: bytes = b""


DecodeSubscription = Callable[[bytes], MemberSubscription | None]


def no_subscription(_: bytes) -> MemberSubscription | None:
    """Decode nothing: no decoder was given."""
    return None


class Members(Port):
    """The members of a group of any kind; all have `member_id`, `client_id` and `client_host`."""

    def __iter__(self) -> Iterator[Any]: ...

    def __len__(self) -> int: ...


class Group(Port):
    """A group of any kind. Everything after `forget` serves requests of its members.

    Each call raises (or its promise is broken with) what the member must know: UnknownMember,
    FencedInstance, IllegalGeneration, RebalanceInProgress, InconsistentProtocol...
    """

    name: str

    protocol_type: str  # CONSUMER_PROTOCOL, another one of classic members, or "" without members

    @property
    def members(self) -> Members:
        """Its members; not to be kept."""

    @property
    def type(self) -> str:
        """CLASSIC, CONSUMER, SHARE or STREAMS."""

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

    def release(self, error: BrokerError) -> None:
        """End here as it is, without facts; requests that wait get the error."""

    def join(self, request: JoinRequest) -> Promise[JoinResult]:
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
    ) -> Promise[SyncResult]:
        """Bring or get the assignment of a classic member."""

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> None:
        """Hear that a classic member lives."""

    def leave(self, member_id: str, instance_id: str | None = None) -> None:
        """Let a member go, by its id or, for a static one, by its instance alone."""

    def check_commit(self, member_id: str, generation: int, instance_id: str | None = None) -> None:
        """Refuse a commit; `generation` is the member's epoch in a consumer group."""

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise where a member may not fetch offsets: unknown, or behind (OffsetFetch v9)."""
