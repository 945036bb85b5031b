"""The coordinators of groups, or of transactional ids: cached, and dropped when they have moved."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.connection import KafkaConnection
from trilogue.client.kafka.errors import KafkaError, error_for_code
from trilogue.client.kafka.model import Node
from trilogue.wire.kafka.groups.classic import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

FIND_COORDINATOR: Final = 10
MANY_SINCE: Final = 4
GROUP: Final = 0
TRANSACTION: Final = 1


class Coordinators:
    """The coordinators of groups, or with the key type TRANSACTION of transactional ids."""

    def __init__(self, cluster: KafkaCluster, key_type: int = GROUP) -> None:
        self._cluster = cluster
        self._key_type = key_type
        self._wait_for_topic: dict[str, Node] = {}

    async def find_coordinators(self, groups: Iterable[str]) -> dict[str, Node | KafkaError]:
        """The coordinators of groups, or why there is none now."""
        wanted = list(dict.fromkeys(groups))
        found: dict[str, Node | KafkaError] = {
            group: self._wait_for_topic[group] for group in wanted if group in self._wait_for_topic
        }
        missing = [group for group in wanted if group not in found]
        if not missing:
            return found
        connection = await self._cluster.any_connection()
        if connection.version(FIND_COORDINATOR) >= MANY_SINCE:
            found |= await self._find_many(connection, missing)
        else:
            for group in missing:
                found[group] = await self._find_one(connection, group)
        self._wait_for_topic |= {
            group: node for group, node in found.items() if not isinstance(node, KafkaError)
        }
        return found

    async def _find_many(
        self, connection: KafkaConnection, groups: list[str]
    ) -> dict[str, Node | KafkaError]:
        answer: FindCoordinatorResponse = await connection.request(
            FindCoordinatorRequest(key_type=self._key_type, coordinator_keys=groups)
        )
        found: dict[str, Node | KafkaError] = {}
        for row in answer.coordinators:
            problem = error_for_code(row.error_code, f"coordinator of {row.key}", row.error_message)
            found[row.key] = problem or Node(row.node_id, row.host, row.port)
        return found

    async def _find_one(self, connection: KafkaConnection, group: str) -> Node | KafkaError:
        answer: FindCoordinatorResponse = await connection.request(
            FindCoordinatorRequest(key=group, key_type=self._key_type)
        )
        problem = error_for_code(answer.error_code, f"coordinator of {group}", answer.error_message)
        return problem or Node(answer.node_id, answer.host, answer.port)

    async def connect(self, group: str, lane: str = "") -> KafkaConnection:
        """A connection to the coordinator of a group; KafkaError where there is none now."""
        node = (await self.find_coordinators([group]))[group]
        if isinstance(node, KafkaError):
            raise node
        try:
            return await self._cluster.connect((node.host, node.port), lane)
        except BaseException:
            self.forget([group])
            raise

    def peek(self, group: str, lane: str = "") -> KafkaConnection | None:
        """The open connection to a coordinator, if there is one now."""
        node = self._wait_for_topic.get(group)
        return None if node is None else self._cluster.peek_at((node.host, node.port), lane)

    def forget(self, groups: Iterable[str]) -> None:
        """Look for them again: they have moved."""
        for group in groups:
            self._wait_for_topic.pop(group, None)
