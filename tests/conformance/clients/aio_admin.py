"""aiokafka as an administrator."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.new_partitions import NewPartitions as AioPartitions
from aiokafka.admin.new_topic import NewTopic as AioTopic
from aiokafka.errors import for_code
from aiokafka.structs import TopicPartition as AioPlace

from tests.conformance.clients.in_python import InPython, Numbers, by_topic


class AiokafkaAdmin(InPython):
    """aiokafka's: it sends one request after another and returns the responses as they are."""

    name = "aiokafka"

    def _request(self, address: str, method: str, *arguments: object) -> object:
        return asyncio.run(self._call(address, method, *arguments))

    async def _call(self, address: str, method: str, *arguments: object) -> object:
        admin = AIOKafkaAdminClient(bootstrap_servers=address)
        await admin.start()
        try:
            return await getattr(admin, method)(*arguments)
        finally:
            await admin.close()

    def _check(self, rows: Sequence[Sequence[object]]) -> None:
        for name, code, *_ in rows:
            if code:
                raise for_code(code)(name)

    def topics(self, address: str) -> list[str]:
        return list(self._request(address, "list_topics"))

    def partitions(self, address: str, topic: str) -> int:
        (response,) = self._request(address, "describe_topics", [topic])
        self._check([(topic, response["error_code"])])
        return len(response["partitions"])

    def create(
        self, address: str, topic: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> None:
        new = AioTopic(topic, partitions, 1, topic_configs=dict(configs or {}))
        self._check(self._request(address, "create_topics", [new]).topic_errors)

    def delete(self, address: str, topic: str) -> None:
        self._check(self._request(address, "delete_topics", [topic]).topic_error_codes)

    def grow(self, address: str, topic: str, partitions: int) -> None:
        new = {topic: AioPartitions(partitions)}
        self._check(self._request(address, "create_partitions", new).topic_errors)

    def configs(self, address: str, resource: str, name: str) -> dict[str, dict[str, object]]:
        requested = [AioResource(resource, name)]
        ((reported,),) = (
            each.resources for each in self._request(address, "describe_configs", requested)
        )
        code, _, _, _, entries = reported
        self._check([(name, code)])
        return {key: {"value": value} for key, value, *_ in entries}

    def alter(self, address: str, resource: str, name: str, values: Mapping[str, str]) -> None:
        """Replace all settings at once: the client cannot describe the present ones."""
        answers = self._request(
            address, "alter_configs", [AioResource(resource, name, dict(values))]
        )
        for answer in answers:
            self._check([(resource[3], resource[0]) for resource in answer.resources])

    def delete_records(self, address: str, topic: str, before: Numbers) -> dict[int, int]:
        requested = {
            AioPlace(topic, int(number)): RecordsToDelete(before_offset=offset)
            for number, offset in before.items()
        }
        response: dict[AioPlace, int] = self._request(address, "delete_records", requested)
        return {place.partition: offset for place, offset in response.items()}

    def cluster(self, address: str) -> dict[str, object]:
        response: dict[str, object] = self._request(address, "describe_cluster")
        nodes = [[node["node_id"], node["host"], node["port"]] for node in response["brokers"]]
        return {
            "id": response["cluster_id"],
            "controller": response["controller_id"],
            "nodes": nodes,
        }

    def groups(self, address: str) -> dict[str, str | None]:
        response = self._request(address, "list_consumer_groups")
        return {name: None for name, *_ in response}

    def describe_group(self, address: str, group: str) -> dict[str, object]:
        (response,) = self._request(address, "describe_consumer_groups", [group])
        ((code, _, state, _, protocol, members, *_),) = response.groups
        self._check([(group, code)])
        return {
            "state": state,
            "protocol": protocol,
            "members": [{"id": each[0], "client": each[-4]} for each in members],
        }

    def group_offsets(self, address: str, group: str) -> dict[str, dict[int, int]]:
        response = self._request(address, "list_consumer_group_offsets", group)
        rows = ((at.topic, at.partition, each.offset) for at, each in response.items())
        return by_topic(rows)
