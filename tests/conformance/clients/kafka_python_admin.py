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

    def _ask(self, address: str, method: str, *arguments: object, **more: object) -> object:
        admin = KafkaAdminClient(bootstrap_servers=address)
        try:
            return getattr(admin, method)(*arguments, **more)
        finally:
            admin.close()

    def topics(self, address: str) -> list[str]:
        return list(self._ask(address, "list_topics"))

    def partitions(self, address: str, topic: str) -> int:
        (told,) = self._ask(address, "describe_topics", [topic])
        if told["error_code"]:
            raise for_code(told["error_code"])
        return len(told["partitions"])

    def create(
        self, address: str, topic: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> None:
        new = NewTopic(topic, partitions, 1, topic_configs=dict(configs or {}))
        self._ask(address, "create_topics", [new])

    def delete(self, address: str, topic: str) -> None:
        self._ask(address, "delete_topics", [topic])

    def grow(self, address: str, topic: str, partitions: int) -> None:
        self._ask(address, "create_partitions", {topic: NewPartitions(partitions)})

    def configs(self, address: str, resource: str, name: str) -> dict[str, dict[str, object]]:
        asked = [ConfigResource(resource, name)]
        told = self._ask(address, "describe_configs", asked, config_filter="all")
        return dict(told[resource][name])

    def alter(
        self,
        address: str,
        resource: str,
        name: str,
        values: Mapping[str, str] | None = None,
        without: Sequence[str] = (),
    ) -> None:
        if values:
            asked = [ConfigResource(resource, name, dict(values))]
            told = self._ask(address, "alter_configs", asked)
            self._ok(told[resource][name])
        if without:
            asked = [ConfigResource(resource, name, dict.fromkeys(without))]
            told = self._ask(address, "reset_configs", asked)
            self._ok(told[resource][name])

    def offsets(self, address: str, topic: str, at: str) -> dict[int, int]:
        ends = {"earliest": OffsetSpec.EARLIEST, "latest": OffsetSpec.LATEST}
        spec = ends[at] if at in ends else OffsetTimestamp(int(at))
        asked = {
            TopicPartition(topic, number): spec for number in range(self.partitions(address, topic))
        }
        told = self._ask(address, "list_partition_offsets", asked)
        return {place.partition: each.offset for place, each in told.items()}

    def newest(self, address: str, topic: str, partition: int) -> int:
        asked = {TopicPartition(topic, partition): OffsetSpec.MAX_TIMESTAMP}
        (told,) = self._ask(address, "list_partition_offsets", asked).values()
        return int(told.offset)

    def delete_records(self, address: str, topic: str, before: Numbers) -> dict[int, int]:
        asked = {TopicPartition(topic, int(number)): offset for number, offset in before.items()}
        told = self._ask(address, "delete_records", asked)
        return {place.partition: each["low_watermark"] for place, each in told.items()}

    def cluster(self, address: str) -> dict[str, object]:
        told: dict[str, object] = self._ask(address, "describe_cluster")
        nodes = [[node["broker_id"], node["host"], node["port"]] for node in told["brokers"]]
        return {"id": told["cluster_id"], "controller": told["controller_id"], "nodes": nodes}

    def log_dirs(self, address: str, node: int) -> dict[str, dict[str, int]]:
        (told,) = self._ask(address, "describe_log_dirs", brokers=[node])
        return {
            each["log_dir"]: {
                f"{topic['name']}-{partition['partition_index']}": partition["partition_size"]
                for topic in each["topics"]
                for partition in topic["partitions"]
            }
            for each in told["log_dirs"]
        }

    def groups(self, address: str) -> dict[str, str | None]:
        told = self._ask(address, "list_groups")
        return {each["group_id"]: each["group_state"] for each in told}

    def describe_group(self, address: str, group: str) -> dict[str, object]:
        told = self._ask(address, "describe_groups", [group])[group]
        return {
            "state": told["group_state"],
            "protocol": told["protocol_data"],
            "members": [
                {"id": each["member_id"], "client": each["client_id"]} for each in told["members"]
            ],
        }

    def group_offsets(self, address: str, group: str) -> dict[str, dict[int, int]]:
        told = self._ask(address, "list_group_offsets", group)[group]
        return by_topic((at.topic, at.partition, each.offset) for at, each in told.items())

    def alter_group_offsets(self, address: str, group: str, topic: str, offsets: Numbers) -> None:
        asked = {
            TopicPartition(topic, int(number)): OffsetAndMetadata(offset, "", -1)
            for number, offset in offsets.items()
        }
        self._raise(self._ask(address, "alter_group_offsets", group, asked))

    def delete_group_offsets(self, address: str, group: str, topic: str, partition: int) -> None:
        place = TopicPartition(topic, partition)
        self._raise(self._ask(address, "delete_group_offsets", group, [place]))

    def _raise(self, told: object) -> None:
        for error in told.values():
            if error is not None and error.errno:
                raise error

    def delete_group(self, address: str, group: str) -> None:
        self._ok(self._ask(address, "delete_groups", [group])[group])

    def _ok(self, text: str) -> None:
        if text != "OK":
            raise KafkaError(text)

    def producers(self, address: str, topic: str, partition: int) -> list[dict[str, int]]:
        place = TopicPartition(topic, partition)
        told = self._ask(address, "describe_producers", [place])[place]
        return [
            {
                "id": each.producer_id,
                "epoch": each.producer_epoch,
                "sequence": each.last_sequence,
                "open_from": each.current_transaction_start_offset,
            }
            for each in told.active_producers
        ]

    def transactions(self, address: str) -> dict[str, str]:
        told = self._ask(address, "list_transactions")
        return {
            each.transactional_id: str(each.state) for listed in told.values() for each in listed
        }

    def describe_transaction(self, address: str, transaction: str) -> str:
        told = self._ask(address, "describe_transactions", [transaction])
        return str(told[transaction].state)

    def elect(self, address: str, topic: str, partition: int) -> None:
        asked = {topic: [partition]}
        self._ask(address, "elect_leaders", PREFERRED, asked)

    def reassign(self, address: str, topic: str, partition: int, nodes: list[int]) -> None:
        asked = {TopicPartition(topic, partition): nodes}
        self._raise(self._ask(address, "alter_partition_reassignments", asked))

    def reassignments(self, address: str) -> dict[str, list[int]]:
        told = self._ask(address, "list_partition_reassignments")
        return {f"{at.topic}-{at.partition}": each["replicas"] for at, each in told.items()}
