"""Administrative requests: the choice of a node, and retries at another one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Any, Final, TypeVar

from trilogue.client.errors import ClientError, ConnectionLost
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.connection import KafkaConnection
from trilogue.client.kafka.coordinators import Coordinators
from trilogue.client.kafka.errors import KafkaError
from trilogue.client.kafka.model import Node
from trilogue.client.retry import FOREVER_S, pauses, retry
from trilogue.wire.kafka.errors import ErrorCode

WRONG_NODE: Final = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
"""Errors that changed nothing: another node, or a later attempt, may succeed."""

Item = TypeVar("Item", bound=Hashable)
Outcome = TypeVar("Outcome")
Attempt = Callable[[list[Item]], Awaitable[dict[Item, Outcome | KafkaError]]]
AtCoordinator = Callable[
    [KafkaConnection, Node, list[str]], Awaitable[dict[str, Outcome | KafkaError]]
]


class AdminRequests:
    """The base of all parts of the admin client."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._timeout_ms = int(cluster.timeout_s * 1000)

    async def _send_to_any(self, request: Any, *, most: int | None = None) -> Any:
        """Send a request to any node, which forwards it to the controller."""
        connection = await self._cluster.any_connection()
        return await self._send_request(connection, request, most)

    async def _send_request(
        self, connection: KafkaConnection, request: Any, most: int | None = None
    ) -> Any:
        # The server may use the whole time-out of the request before it answers.
        timeout_s = self._cluster.timeout_s + 5
        return await connection.request(request, most=most, timeout_s=timeout_s)

    async def _run_for_each(
        self,
        items: Iterable[Item],
        attempt: Attempt[Item, Outcome],
        *,
        repeatable: bool = False,
        moved: Callable[[list[Item]], None] | None = None,
    ) -> dict[Item, Outcome | KafkaError]:
        """The outcome of each item; items that another node has to answer are requested again.

        Lost connections are retried too where the request is `repeatable`: it changes nothing.
        """
        order = list(dict.fromkeys(items))
        found: dict[Item, Outcome | KafkaError] = {}
        left = order
        failure: ClientError | None = None
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._cluster.timeout_s
        for pause in pauses(total_s=FOREVER_S):
            failure = await self._attempt_once(left, attempt, found, repeatable)
            left = [one for one in left if failure or _is_wrong_node(found.get(one))]
            if not left:
                break
            if moved is not None:
                moved(left)
            if loop.time() + pause >= deadline:
                break
            await asyncio.sleep(pause)
        if failure is not None:
            raise failure
        return {one: found[one] for one in order if one in found}

    @staticmethod
    async def _attempt_once(
        left: list[Item],
        attempt: Attempt[Item, Outcome],
        found: dict[Item, Outcome | KafkaError],
        repeatable: bool,
    ) -> ClientError | None:
        """Send one request; returns the error of all items if a retry may succeed."""
        try:
            found |= await attempt(left) if left else {}
        except ConnectionLost as lost:
            if not repeatable:
                raise
            return lost
        except KafkaError as refused:
            if refused.error not in WRONG_NODE:
                raise
            return refused
        return None

    async def _retry(self, work: Callable[[], Awaitable[Outcome]]) -> Outcome:
        """The response to a request that changes nothing, retried until there is one."""
        return await retry(
            work,
            about="administration",
            server=self._cluster.servers,
            total_s=self._cluster.timeout_s,
            may_pass=lambda problem: isinstance(problem, ConnectionLost) or _is_wrong_node(problem),
            was_reached=self._cluster.was_reached,
        )

    async def _all_nodes(self) -> dict[int, KafkaConnection]:
        """A connection to every node."""
        await self._cluster.refresh_nodes()
        return {number: await self._cluster.node(number) for number in sorted(self._cluster.nodes)}

    async def _request_coordinators(
        self,
        coordinators: Coordinators,
        names: Iterable[str],
        work: AtCoordinator[Outcome],
        *,
        repeatable: bool = False,
    ) -> dict[str, Outcome | KafkaError]:
        """Send a request to the coordinator of each name, looked up again where it moved."""

        async def attempt(left: list[str]) -> dict[str, Outcome | KafkaError]:
            found: dict[str, Outcome | KafkaError] = {}
            by_node: dict[Node, list[str]] = {}
            for name, node in (await coordinators.find_coordinators(left)).items():
                if isinstance(node, KafkaError):
                    found[name] = node
                else:
                    by_node.setdefault(node, []).append(name)
            for node, some in by_node.items():
                connection = await self._reach(coordinators, node, some)
                found |= await work(connection, node, some)
            return found

        return await self._run_for_each(
            names, attempt, repeatable=repeatable, moved=coordinators.forget
        )

    async def _reach(
        self, coordinators: Coordinators, node: Node, names: list[str]
    ) -> KafkaConnection:
        """A connection to a coordinator; an error means that no request was sent."""
        try:
            return await self._cluster.connect((node.host, node.port))
        except ConnectionLost as lost:
            coordinators.forget(names)
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "coordinator", str(lost)
            ) from lost


def _is_wrong_node(outcome: object) -> bool:
    return isinstance(outcome, KafkaError) and outcome.error in WRONG_NODE
