"""kafka-python as an administrator."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

from tests.conformance.clients.in_python import InPython, Numbers, by_topic

with warnings.catch_warnings():  # it reads its schemas through a deprecated function
    warnings.simplefilter("ignore")
    from kafka import OffsetAndMetadata, TopicPartition
    from kafka.admin import (
        ConfigResource,
        KafkaAdminClient,
        NewPartitions,
        NewTopic,
        OffsetSpec,
        OffsetTimestamp,
    )
    from kafka.errors import KafkaError, for_code

PREFERRED = 0


class KafkaPythonAdmin(InPython):
    """kafka-python's."""

    name = "kafka-python"

    def _request(self, address: str, method: str, *arguments: object, **more: object) -> object:
        admin = KafkaAdminClient(bootstrap_servers=address)
        try:
            return getattr(admin, method)(*arguments, **more)
        finally:
            admin.close()

    def topics(self, address: str) -> list[str]:
        return list(self._request(address, "list_topics"))

    def partitions(self, address: str, topic: str) -> int:
        (response,) = self._request(address, "describe_topics", [topic])
        if response["error_code"]:
            raise for_code(response["error_code"])
        return len(response["partitions"])

    def create(
        self, address: str, topic: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> None:
        new = NewTopic(topic, partitions, 1, topic_configs=dict(configs or {}))
        self._request(address, "create_topics", [new])

    def delete(self, address: str, topic: str) -> None:
        self._request(address, "delete_topics", [topic])

    def grow(self, address: str, topic: str, partitions: int) -> None:
        self._request(address, "create_partitions", {topic: NewPartitions(partitions)})

    def configs(self, address: str, resource: str, name: str) -> dict[str, dict[str, object]]:
        requested = [ConfigResource(resource, name)]
        response = self._request(address, "describe_configs", requested, config_filter="all")
        return dict(response[resource][name])

    def alter(
        self,
        address: str,
        resource: str,
        name: str,
        values: Mapping[str, str] | None = None,
        without: Sequence[str] = (),
    ) -> None:
        if values:
            requested = [ConfigResource(resource, name, dict(values))]
            response = self._request(address, "alter_configs", requested)
            self._ok(response[resource][name])
        if without:
            requested = [ConfigResource(resource, name, dict.fromkeys(without))]
            response = self._request(address, "reset_configs", requested)
            self._ok(response[resource][name])

    def offsets(self, address: str, topic: str, at: str) -> dict[int, int]:
        ends = {"earliest": OffsetSpec.EARLIEST, "latest": OffsetSpec.LATEST}
        spec = ends[at] if at in ends else OffsetTimestamp(int(at))
        requested = {
            TopicPartition(topic, number): spec for number in range(self.partitions(address, topic))
        }
        response = self._request(address, "list_partition_offsets", requested)
        return {place.partition: each.offset for place, each in response.items()}

    def newest(self, address: str, topic: str, partition: int) -> int:
        requested = {TopicPartition(topic, partition): OffsetSpec.MAX_TIMESTAMP}
        (response,) = self._request(address, "list_partition_offsets", requested).values()
        return int(response.offset)

    def delete_records(self, address: str, topic: str, before: Numbers) -> dict[int, int]:
        requested = {
            TopicPartition(topic, int(number)): offset for number, offset in before.items()
        }
        response = self._request(address, "delete_records", requested)
        return {place.partition: each["low_watermark"] for place, each in response.items()}

    def cluster(self, address: str) -> dict[str, object]:
        response: dict[str, object] = self._request(address, "describe_cluster")
        nodes = [[node["broker_id"], node["host"], node["port"]] for node in response["brokers"]]
        return {
            "id": response["cluster_id"],
            "controller": response["controller_id"],
            "nodes": nodes,
        }

    def log_dirs(self, address: str, node: int) -> dict[str, dict[str, int]]:
        (response,) = self._request(address, "describe_log_dirs", brokers=[node])
        return {
            each["log_dir"]: {
                f"{topic['name']}-{partition['partition_index']}": partition["partition_size"]
                for topic in each["topics"]
                for partition in topic["partitions"]
            }
            for each in response["log_dirs"]
        }

    def groups(self, address: str) -> dict[str, str | None]:
        response = self._request(address, "list_groups")
        return {each["group_id"]: each["group_state"] for each in response}

    def describe_group(self, address: str, group: str) -> dict[str, object]:
        response = self._request(address, "describe_groups", [group])[group]
        return {
            "state": response["group_state"],
            "protocol": response["protocol_data"],
            "members": [
                {"id": each["member_id"], "client": each["client_id"]}
                for each in response["members"]
            ],
        }

    def group_offsets(self, address: str, group: str) -> dict[str, dict[int, int]]:
        response = self._request(address, "list_group_offsets", group)[group]
        return by_topic((at.topic, at.partition, each.offset) for at, each in response.items())

    def alter_group_offsets(self, address: str, group: str, topic: str, offsets: Numbers) -> None:
        requested = {
            TopicPartition(topic, int(number)): OffsetAndMetadata(offset, "", -1)
            for number, offset in offsets.items()
        }
        self._raise(self._request(address, "alter_group_offsets", group, requested))

    def delete_group_offsets(self, address: str, group: str, topic: str, partition: int) -> None:
        place = TopicPartition(topic, partition)
        self._raise(self._request(address, "delete_group_offsets", group, [place]))

    def _raise(self, reported: object) -> None:
        for error in reported.values():
            if error is not None and error.errno:
                raise error

    def delete_group(self, address: str, group: str) -> None:
        self._ok(self._request(address, "delete_groups", [group])[group])

    def _ok(self, text: str) -> None:
        if text != "OK":
            raise KafkaError(text)

    def producers(self, address: str, topic: str, partition: int) -> list[dict[str, int]]:
        place = TopicPartition(topic, partition)
        response = self._request(address, "describe_producers", [place])[place]
        return [
            {
                "id": each.producer_id,
                "epoch": each.producer_epoch,
                "sequence": each.last_sequence,
                "open_from": each.current_transaction_start_offset,
            }
            for each in response.active_producers
        ]

    def transactions(self, address: str) -> dict[str, str]:
        response = self._request(address, "list_transactions")
        return {
            each.transactional_id: str(each.state)
            for listed in response.values()
            for each in listed
        }

    def describe_transaction(self, address: str, transaction: str) -> str:
        response = self._request(address, "describe_transactions", [transaction])
        return str(response[transaction].state)

    def elect(self, address: str, topic: str, partition: int) -> None:
        requested = {topic: [partition]}
        self._request(address, "elect_leaders", PREFERRED, requested)

    def reassign(self, address: str, topic: str, partition: int, nodes: list[int]) -> None:
        requested = {TopicPartition(topic, partition): nodes}
        self._raise(self._request(address, "alter_partition_reassignments", requested))

    def reassignments(self, address: str) -> dict[str, list[int]]:
        response = self._request(address, "list_partition_reassignments")
        return {f"{at.topic}-{at.partition}": each["replicas"] for at, each in response.items()}
