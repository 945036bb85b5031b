"""How administrative requests are asked: of whom, and again when somebody else is to be asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Any, Final, TypeVar

from trilogue.client.errors import ClientError, ConnectionLost
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.connection import KafkaConnection
from trilogue.client.kafka.errors import KafkaError
from trilogue.client.retry import pauses
from trilogue.wire.kafka.errors import ErrorCode

ELSEWHERE: Final = frozenset(
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
"""Refusals that did nothing and say: ask somebody else, or in a moment."""

Item = TypeVar("Item", bound=Hashable)
Outcome = TypeVar("Outcome")
Attempt = Callable[[list[Item]], Awaitable[dict[Item, Outcome | KafkaError]]]


class Asking:
    """What all parts of the administration are made of."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._timeout_ms = int(cluster.timeout_s * 1000)

    async def _controlled(self, request: Any, *, most: int | None = None) -> Any:
        """Ask any node; the controller only where it must be (before KRaft)."""
        connection = await self._cluster.any_connection()
        return await self._ask(connection, request, most)

    async def _ask(self, connection: KafkaConnection, request: Any, most: int | None = None) -> Any:
        # The server has as long as it was told; then its answer has to come.
        timeout_s = self._cluster.timeout_s + 5
        return await connection.request(request, most=most, timeout_s=timeout_s)

    async def _each(
        self,
        items: Iterable[Item],
        attempt: Attempt[Item, Outcome],
        *,
        repeatable: bool = False,
        moved: Callable[[list[Item]], None] | None = None,
    ) -> dict[Item, Outcome | KafkaError]:
        """Outcomes of items; those that somebody else has to answer are asked for again.

        Lost connections are retried too where the request is `repeatable`: it changes nothing.
        """
        order = list(dict.fromkeys(items))
        found: dict[Item, Outcome | KafkaError] = {}
        left = order
        trouble: ClientError | None = None
        for pause in pauses(total_s=self._cluster.timeout_s):
            trouble = await self._attempted(left, attempt, found, repeatable)
            left = [one for one in left if trouble or _is_elsewhere(found.get(one))]
            if not left:
                break
            if moved is not None:
                moved(left)
            await asyncio.sleep(pause)
        if trouble is not None:
            raise trouble
        return {one: found[one] for one in order if one in found}

    @staticmethod
    async def _attempted(
        left: list[Item],
        attempt: Attempt[Item, Outcome],
        found: dict[Item, Outcome | KafkaError],
        repeatable: bool,
    ) -> ClientError | None:
        """Ask once; what kept all of them from being answered, if it may pass."""
        try:
            found |= await attempt(left) if left else {}
        except ConnectionLost as lost:
            if not repeatable:
                raise
            return lost
        except KafkaError as refused:
            if refused.error not in ELSEWHERE:
                raise
            return refused
        return None

    async def _again(self, work: Callable[[], Awaitable[Outcome]]) -> Outcome:
        """The answer to a question that changes nothing, asked until there is one."""
        trouble: ClientError = ConnectionLost("no answer")
        for pause in pauses(total_s=self._cluster.timeout_s):
            try:
                return await work()
            except ConnectionLost as lost:
                trouble = lost
            except KafkaError as refused:
                if refused.error not in ELSEWHERE:
                    raise
                trouble = refused
            await asyncio.sleep(pause)
        raise trouble

    async def _all_nodes(self) -> dict[int, KafkaConnection]:
        """A connection to every node."""
        await self._cluster.learn_nodes()
        return {number: await self._cluster.node(number) for number in sorted(self._cluster.nodes)}


def _is_elsewhere(outcome: object) -> bool:
    return isinstance(outcome, KafkaError) and outcome.error in ELSEWHERE
