"""Another node as a test plays it: who owns what, and a port that keeps what was sent."""

from __future__ import annotations

from trilogue.broker.errors import NotReady
from trilogue.broker.node_requests import NodeReply, NodeRequest
from trilogue.broker.promise import Promise

HERE, THERE, THIRD = 1, 2, 3


class FakeOwnership:
    """A name begins with the number of its node; partitions are given."""

    is_divided = True
    node_id = HERE

    def __init__(self, partitions: dict[int, int]) -> None:
        self.partitions = partitions

    def name_owner(self, name: str) -> int:
        return int(name[0])

    def owns_name(self, name: str) -> bool:
        return self.name_owner(name) == HERE

    def partition_owner(self, partition_id: int) -> int:
        return self.partitions[partition_id]

    def owns_partition(self, partition_id: int) -> bool:
        return self.partition_owner(partition_id) == HERE


class FakePort:
    def __init__(self) -> None:
        self.sent: list[tuple[int, NodeRequest, Promise[NodeReply]]] = []

    def send(self, node_id: int, request: NodeRequest) -> Promise[NodeReply]:
        promise: Promise[NodeReply] = Promise()
        self.sent.append((node_id, request, promise))
        return promise

    @property
    def waiting(self) -> list[tuple[int, NodeRequest]]:
        return [(node_id, request) for node_id, request, answer in self.sent if not answer.done]

    def answer(self, error: BaseException | None = None) -> None:
        """Answer everything that waits."""
        for _, _, promise in list(self.sent):
            if promise.done:
                continue
            if error is None:
                promise.set_result(None)
            else:
                promise.set_error(error)

    def lose(self) -> None:
        """Let the connections end."""
        self.answer(NotReady("node 2 has not answered"))
