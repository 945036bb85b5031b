"""Opens what a node shares requests with: the other nodes of its directory."""

from __future__ import annotations

from contextlib import AsyncExitStack

from trilogue.node.siblings.links import SiblingLinks
from trilogue.node.siblings.server import SiblingServer
from trilogue.node.storage import Storage


async def reach_siblings(storage: Storage, stack: AsyncExitStack) -> None:
    """Answer requests of the other nodes, and send them those of this one's broker; OSError."""
    broker, node_id = storage.broker, storage.place.node_id
    directory = storage.directory.path / "nodes"
    server = SiblingServer(directory, node_id, broker.node_requests.handle)
    await server.open()
    stack.push_async_callback(server.close)
    links = SiblingLinks(directory, node_id, storage.meta.state.node_epoch)
    stack.push_async_callback(links.close)
    broker.branches.port = links
