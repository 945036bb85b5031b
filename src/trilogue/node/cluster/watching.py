"""What a node with `ack=shared` does beside its service: it watches its lease, and the others."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from trilogue.node.cluster.lease_guard import LeaseGuard
from trilogue.node.cluster.slot_watch import SlotWatch

if TYPE_CHECKING:
    from trilogue.node.cluster.shared_committer import SharedCommitter
    from trilogue.node.node import Node


def watch_cluster(node: Node, shared: SharedCommitter, stack: AsyncExitStack) -> None:
    """Begin to watch; `stack` ends it with the node."""
    cluster = node.place.cluster
    assert cluster is not None
    assert cluster.shared is not None
    node.add_work(LeaseGuard(shared, node.listeners).run())
    if cluster.shared.is_recovery:
        return
    watch = SlotWatch(node, cluster, cluster.shared)
    stack.callback(watch.close)
    node.add_work(watch.run())
