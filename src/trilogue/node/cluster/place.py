"""Which cluster a node belongs to."""

from __future__ import annotations

import msgspec


class SharedPlace(msgspec.Struct, frozen=True):
    """How a node with `ack=shared` gets and keeps its lease."""

    lease_s: float
    is_standby: bool = False  # it serves as any node whose lease is over
    spread_after_s: float | None = None  # after a lease is over; None: slots wait for their node
    after_epoch: int = 0  # the epoch of the node that is over; 0 = there was none
    after_renewals: int | None = None  # of its lease; None: it is this process's own
    is_recovery: bool = False  # it serves no clients: it brings the journal into segments, and ends


class ClusterPlace(msgspec.Struct, frozen=True):
    """The cluster of a node that has a data directory of its own, and metadata in PostgreSQL."""

    url: str
    owners: tuple[int, ...]  # of the slots, if this node creates the cluster
    shared: SharedPlace | None = None  # with `ack=shared`
