"""What the nodes of a cluster request of each other, and the port for it.

    JoinTransaction      to the coordinator: may a client write here in its open transaction?
    FindTransaction      to the coordinator: whose is the transaction of a TxnID?
    EndBranch            to a node that has a part of a transaction: this is the outcome
    ListSubscriptions    to the owner of a partition: which durable subscriptions has it?
    CreateSubscription   to the owner of partitions that were added: they get this one
    DescribeProducers    to the owner of a partition: which producers has it?

The answer is that it is done and durable, with what was found, or the error. A request that was
sent may arrive twice, or without its answer: both have the same effect when they are repeated. A
node gets the requests of another one in the order in which they were sent, and none of an earlier
connection after the first one of a later connection (node/siblings).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from trilogue.broker.cursors.cursor_facts import subscription_key
from trilogue.broker.cursors.position import PositionKey
from trilogue.broker.errors import NotReady
from trilogue.broker.facts import CursorMove
from trilogue.broker.promise import Promise
from trilogue.broker.transactions.records import DeferredAck


class SubscriptionPart(NamedTuple):
    """A subscription whose messages a client acks in a transaction."""

    partition_id: int
    name: str
    created_ms: int

    @property
    def subscription(self) -> tuple[PositionKey, int]:
        """The key of the subscription's cursor, and the time of its creation."""
        return subscription_key(self.partition_id, self.name), self.created_ms


Part: TypeAlias = int | str | SubscriptionPart  # a partition, a group, a subscription


class JoinTransaction(msgspec.Struct, frozen=True, tag="join", array_like=True):
    """A part that a client writes to in a transaction."""

    transactional_id: str
    producer_id: int
    epoch: int
    part: Part
    adds: bool  # to the transaction; otherwise it has to be a part of it


class EndBranch(msgspec.Struct, frozen=True, tag="end", array_like=True):
    """The outcome of a transaction, for partitions and groups of the node that gets it."""

    transactional_id: str
    producer_id: int
    epoch: int  # of the markers
    coordinator_epoch: int
    is_commit: bool
    partition_ids: tuple[int, ...]
    groups: tuple[str, ...]
    positions: tuple[tuple[str, tuple[CursorMove, ...]], ...] = ()
    """Positions that the coordinator has of groups: these have moved since it has decided."""
    acks: tuple[DeferredAck, ...] = ()
    """Subscriptions, with acks that the coordinator has: these have moved since it has decided."""


class FindTransaction(msgspec.Struct, frozen=True, tag="find", array_like=True):
    """The TxnID by which a Pulsar client names a transaction."""

    most: int
    least: int


class TransactionName(msgspec.Struct, frozen=True, array_like=True):
    """The transactional id of a transaction, and its owner if a Pulsar client began it."""

    transactional_id: str
    owner: str


class SubscriptionRow(msgspec.Struct, frozen=True, array_like=True):
    """A durable subscription, as it is created on another partition."""

    name: str
    properties: dict[str, str]


class ListSubscriptions(msgspec.Struct, frozen=True, tag="list-subscriptions", array_like=True):
    """The durable subscriptions of a partition, in the order of their names."""

    partition_id: int
    after: str  # names above this one


class CreateSubscription(msgspec.Struct, frozen=True, tag="create-subscription", array_like=True):
    """A subscription that partitions get, at their first message."""

    row: SubscriptionRow
    partition_ids: tuple[int, ...]


class SubscriptionRows(msgspec.Struct, frozen=True, array_like=True):
    """Some subscriptions; `is_last` is false where there are more."""

    rows: tuple[SubscriptionRow, ...]
    is_last: bool


class DescribeProducers(msgspec.Struct, frozen=True, tag="describe-producers", array_like=True):
    """The producers of a partition, in the order of their ids."""

    partition_id: int
    after: int  # ids above this one


class ProducerRow(msgspec.Struct, frozen=True, array_like=True):
    """A producer of a partition; -1 for what it has not."""

    producer_id: int
    epoch: int
    last_sequence: int
    active_ms: int
    transaction_offset: int  # where its open transaction begins


class ProducerRows(msgspec.Struct, frozen=True, array_like=True):
    """Some producers; `is_last` is false where there are more."""

    rows: tuple[ProducerRow, ...]
    is_last: bool


SubscriptionRequest: TypeAlias = ListSubscriptions | CreateSubscription
NodeRequest: TypeAlias = (
    JoinTransaction | FindTransaction | EndBranch | SubscriptionRequest | DescribeProducers
)
NodeReply: TypeAlias = TransactionName | SubscriptionRows | ProducerRows | None


class NodePort(Protocol):
    """Sends requests to other nodes."""

    def send(self, node_id: int, request: NodeRequest) -> Promise[NodeReply]:
        """Send a request; the promise has the other node's error, or NotReady: nothing is known."""


class NoNodes:
    """The port of a node that is alone, or that has not opened its port yet."""

    def send(self, node_id: int, _request: NodeRequest) -> Promise[NodeReply]:
        """Return NotReady."""
        return Promise.rejected(NotReady(f"node {node_id} is not reached yet"))
