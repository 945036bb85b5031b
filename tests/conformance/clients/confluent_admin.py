"""librdkafka as an administrator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import confluent_kafka
from confluent_kafka import ConsumerGroupTopicPartitions, ElectionType
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from tests.conformance.clients.base import DEADLINE
from tests.conformance.clients.in_python import InPython, Numbers, by_topic


class ConfluentAdmin(InPython):
    """librdkafka's, through confluent-kafka."""

    name = "confluent"

    def _admin(self, address: str) -> AdminClient:
        return AdminClient({"bootstrap.servers": address, "log_level": 2})

    def _request(self, address: str, method: str, *arguments: object) -> object:
        """The result, by resource where the library returns futures by resource. The call goes on
        only while a reference to the client exists."""
        admin = self._admin(address)
        response = getattr(admin, method)(*arguments)
        if isinstance(response, Mapping):
            return {about: each.result(DEADLINE) for about, each in response.items()}
        return response.result(DEADLINE)

    def _one(self, address: str, method: str, *arguments: object) -> object:
        (answer,) = self._request(address, method, *arguments).values()
        return answer

    def topics(self, address: str) -> list[str]:
        return list(self._admin(address).list_topics(timeout=DEADLINE).topics)

    def partitions(self, address: str, topic: str) -> int:
        found = self._admin(address).list_topics(topic, DEADLINE).topics[topic]
        if found.error is not None:
            raise confluent_kafka.KafkaException(found.error)
        return len(found.partitions)

    def create(
        self, address: str, topic: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> None:
        new = NewTopic(topic, partitions, 1, config=dict(configs or {}))
        self._one(address, "create_topics", [new])

    def delete(self, address: str, topic: str) -> None:
        self._one(address, "delete_topics", [topic])

    def grow(self, address: str, topic: str, partitions: int) -> None:
        new = NewPartitions(topic, partitions)
        self._one(address, "create_partitions", [new])

    def configs(self, address: str, resource: str, name: str) -> dict[str, dict[str, object]]:
        reported = self._one(address, "describe_configs", [ConfigResource(resource, name)])
        return {
            each.name: {"value": each.value, "default": each.is_default}
            for each in reported.values()
        }

    def alter(
        self,
        address: str,
        resource: str,
        name: str,
        values: Mapping[str, str] | None = None,
        without: Sequence[str] = (),
    ) -> None:
        changes = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in (values or {}).items()
        ]
        changes += [
            ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE)
            for key in without
        ]
        config_resource = ConfigResource(resource, name, incremental_configs=changes)
        self._one(address, "incremental_alter_configs", [config_resource])

    def offsets(self, address: str, topic: str, at: str) -> dict[int, int]:
        ends = {"earliest": OffsetSpec.earliest, "latest": OffsetSpec.latest}
        spec = ends[at]() if at in ends else OffsetSpec.for_timestamp(int(at))
        requested = {
            Place(topic, number): spec for number in range(self.partitions(address, topic))
        }
        response = self._request(address, "list_offsets", requested)
        return {place.partition: each.offset for place, each in response.items()}

    def newest(self, address: str, topic: str, partition: int) -> int:
        requested = {Place(topic, partition): OffsetSpec.max_timestamp()}
        return self._one(address, "list_offsets", requested).offset

    def delete_records(self, address: str, topic: str, before: Numbers) -> dict[int, int]:
        requested = [Place(topic, int(number), offset) for number, offset in before.items()]
        response = self._request(address, "delete_records", requested)
        return {place.partition: each.low_watermark for place, each in response.items()}

    def cluster(self, address: str) -> dict[str, object]:
        response = self._request(address, "describe_cluster")
        nodes = [[node.id, node.host, node.port] for node in response.nodes]
        return {"id": response.cluster_id, "controller": response.controller.id, "nodes": nodes}

    def groups(self, address: str) -> dict[str, str | None]:
        response = self._request(address, "list_consumer_groups")
        assert response.errors == []
        return {each.group_id: each.state.name for each in response.valid}

    def describe_group(self, address: str, group: str) -> dict[str, object]:
        response = self._one(address, "describe_consumer_groups", [group])
        members = [
            {
                "id": each.member_id,
                "client": each.client_id,
                "partitions": [
                    [at.topic, at.partition]
                    for at in (each.assignment.topic_partitions if each.assignment else [])
                ],
            }
            for each in response.members
        ]
        return {
            "state": response.state.name,
            "protocol": response.partition_assignor,
            "members": members,
        }

    def group_offsets(self, address: str, group: str) -> dict[str, dict[int, int]]:
        requested = [ConsumerGroupTopicPartitions(group)]
        response = self._one(address, "list_consumer_group_offsets", requested)
        return by_topic((at.topic, at.partition, at.offset) for at in response.topic_partitions)

    def alter_group_offsets(self, address: str, group: str, topic: str, offsets: Numbers) -> None:
        places = [Place(topic, int(number), offset) for number, offset in offsets.items()]
        requested = [ConsumerGroupTopicPartitions(group, places)]
        response = self._one(address, "alter_consumer_group_offsets", requested)
        for at in response.topic_partitions:
            if at.error is not None:
                raise confluent_kafka.KafkaException(at.error)

    def delete_group(self, address: str, group: str) -> None:
        self._one(address, "delete_consumer_groups", [group])

    def elect(self, address: str, topic: str, partition: int) -> str | None:
        requested = [Place(topic, partition)]
        response = self._request(address, "elect_leaders", ElectionType.PREFERRED, requested)
        (error,) = response.values()
        return None if error is None else error.name()
