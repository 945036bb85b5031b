"""Which cluster a node belongs to."""

from __future__ import annotations

import msgspec


class ClusterPlace(msgspec.Struct, frozen=True):
    """The cluster of a node that has a data directory of its own, and metadata in PostgreSQL."""

    url: str
    owners: tuple[int, ...]  # of the slots, if this node creates the cluster
