"""Opens the metadata and the shared journal of a node of a cluster."""

from __future__ import annotations

import asyncio
from functools import partial

from msgspec.structs import replace

from trilogue.log.directory import DataDirectory
from trilogue.log.errors import StorageFailed
from trilogue.log.files import OsFileSystem
from trilogue.meta.postgres import PostgresMeta
from trilogue.meta.postgres_connection import blocking_connection
from trilogue.meta.queued_meta import OnFailed
from trilogue.meta.shared_journal import read_journal
from trilogue.meta.state import MetaState
from trilogue.node.cluster.folder import open_folder, record_cluster
from trilogue.node.cluster.place import ClusterPlace
from trilogue.node.cluster.shared_committer import SharedCommitter
from trilogue.node.cluster.window_recovery import write_journal


def open_cluster_meta(
    fs: OsFileSystem,
    directory: DataDirectory,
    node_id: int,
    cluster: ClusterPlace,
    on_failed: OnFailed,
) -> PostgresMeta:
    """Open the metadata in PostgreSQL; the first node creates the cluster. LogError."""
    folder = open_folder(fs, directory)
    meta = PostgresMeta.open(
        cluster.url,
        node_id=node_id,
        home=folder.home,
        cluster_id=folder.cluster_id,
        owners=cluster.owners,
        after_epoch=None if cluster.shared is None else cluster.shared.after_epoch,
        after_renewals=None if cluster.shared is None else cluster.shared.after_renewals,
        on_failed=on_failed,
    )
    try:
        owners = sorted({row.node_id for row in meta.state.slots.values()})
        if node_id not in owners and cluster.shared is None:
            raise StorageFailed(
                f"node {node_id} owns no slots: the cluster was created for the nodes "
                f"{', '.join(map(str, owners))} (cluster.size)"
            )
        if folder.cluster_id is None:
            record_cluster(fs, directory, replace(folder, cluster_id=meta.state.cluster_id))
    except BaseException:
        meta.close()
        raise
    return meta


def open_shared_journal(
    cluster: ClusterPlace, state: MetaState, loop: asyncio.AbstractEventLoop, on_failed: OnFailed
) -> SharedCommitter:
    """Start the committer of a node with `ack=shared`, which has begun its epoch; LogError."""
    assert cluster.shared is not None
    return SharedCommitter(
        loop,
        cluster.url,
        node_id=state.node_id,
        epoch=cluster.shared.after_epoch + 1,
        lease_s=cluster.shared.lease_s,
        on_failed=on_failed,
    )


def restore_journal(
    fs: OsFileSystem,
    directory: DataDirectory,
    cluster: ClusterPlace,
    state: MetaState,
    epoch: int,
) -> None:
    """Write the journal files of what PostgreSQL has of the epochs before this one.

    These epochs are fenced: the rows that are read are all that there will ever be, and no flush of
    theirs can follow `state`. LogError, OSError.
    """
    through = state.flushed_through
    read = partial(read_journal, node_id=state.node_id, epoch=epoch, through=through)
    with blocking_connection(cluster.url) as connection:
        windows = connection.run(read)
    write_journal(fs, directory.journal, state.cluster_id, windows)
