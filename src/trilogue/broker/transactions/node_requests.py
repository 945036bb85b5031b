"""What the nodes of a cluster request of each other about transactions, and the port for it.

    JoinTransaction   to the coordinator: may a producer write here in its open transaction?
    EndBranch         to a node that has a part of a transaction: this is the outcome

The answer to each is that it is done and durable, or the error. A request that was sent may arrive
twice, or without its answer: both have the same effect when they are repeated. A node gets the
requests of another one in the order in which they were sent, and none of an earlier connection
after the first one of a later connection (node/siblings).
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

import msgspec

from trilogue.broker.errors import NotReady
from trilogue.broker.facts import CursorMove
from trilogue.broker.promise import Promise


class JoinTransaction(msgspec.Struct, frozen=True, tag="join", array_like=True):
    """A partition (its id) or a group (its name) that a producer writes to in a transaction."""

    transactional_id: str
    producer_id: int
    epoch: int
    part: int | str
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


NodeRequest: TypeAlias = JoinTransaction | EndBranch


class NodePort(Protocol):
    """Sends requests to other nodes."""

    def send(self, node_id: int, request: NodeRequest) -> Promise[None]:
        """Send a request; the promise has the other node's error, or NotReady: nothing is known."""


class NoNodes:
    """The port of a node that is alone, or that has not opened its port yet."""

    def send(self, node_id: int, _request: NodeRequest) -> Promise[None]:
        """Return NotReady."""
        return Promise.rejected(NotReady(f"node {node_id} is not reached yet"))
