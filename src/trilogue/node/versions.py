"""Opens the record of how far the other nodes have applied meta's changes."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from trilogue.node.storage import Storage

if TYPE_CHECKING:
    from trilogue.node.followed_versions import AppliedVersions


def open_versions(storage: Storage, stack: AsyncExitStack) -> AppliedVersions:
    """Return the record for the nodes of a directory or of a cluster; `stack` closes it."""
    if storage.place.cluster is not None:
        from trilogue.meta.postgres import PostgresMeta
        from trilogue.node.cluster.versions import ClusterVersions

        assert isinstance(storage.meta, PostgresMeta)
        return ClusterVersions(storage.meta)
    from trilogue.node.followed_versions import FollowedVersions

    path = storage.directory.path / "nodes" / "versions"
    versions = FollowedVersions(path, storage.place.node_id)
    stack.callback(versions.close)
    return versions
