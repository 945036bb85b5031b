"""Opens the metadata of a node of a cluster."""

from __future__ import annotations

from msgspec.structs import replace

from trilogue.log.directory import DataDirectory
from trilogue.log.errors import StorageFailed
from trilogue.log.files import OsFileSystem
from trilogue.meta.postgres import PostgresMeta
from trilogue.meta.queued_meta import OnFailed
from trilogue.node.cluster.folder import open_folder, record_cluster
from trilogue.node.cluster.place import ClusterPlace


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
        on_failed=on_failed,
    )
    try:
        owners = sorted({row.node_id for row in meta.state.slots.values()})
        if node_id not in owners:
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
