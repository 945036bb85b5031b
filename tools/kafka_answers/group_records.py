"""`python -m tools.kafka_answers.group_records`: records of groups, compared with Kafka's.

The same members join, move and leave groups of each kind that has epochs at Trilogue and at a real
Kafka 4.3.1. What each then has in its topic is written to group_records.json: by key, all values in
their order. Ids of topics are replaced by names, times and hashes by words. `--ours` renews
Trilogue's part alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition
from tests.server import start_server

from tools.kafka_answers.asking import Questions
from tools.kafka_answers.versions import write_json
from tools.servers.kafka import RealKafka
from trilogue.wire.kafka.groups.group_records import (
    VALUE_OF_KIND,
    GroupRecordKind,
    decode_record_value,
)

RECORDED = Path(__file__).with_name("group_records.json")
REAL, OURS = "kafka 4.3.1", "trilogue"
TOPIC, OFFSETS = "orders", "__consumer_offsets"
PARTITIONS = 4
STEPS_MAX = 100
Spec = dict[str, Any]
Records = dict[str, list[Any]]
"""Kind, group and member of a key, to its values in their order; None where the key is gone."""


class GroupWalk:
    """Plays the members of all groups against one server."""

    def __init__(self, address: str) -> None:
        self._questions = Questions(address, "walk", timeout=60.0)
        self._address = address

    def run(self) -> Records:
        """Return the records of all groups."""
        self._consumer().close()
        topic = {"name": TOPIC, "num_partitions": PARTITIONS, "replication_factor": 1}
        self._request(19, 5, {"topics": [topic], "timeout_ms": 30_000})
        self._find_topic(OFFSETS)  # a request for it begins it
        self._topic_id = self._find_topic(TOPIC)
        self._walk_consumer_group()
        self._walk_patterns()
        self._walk_share_group()
        self._walk_streams_group()
        for group in ("consumers", "patterns", "sharers", "streamers"):
            self._request(42, 2, {"groups_names": [group]})
        return self._read_records()

    def _request(self, key: int, version: int, spec: Spec) -> Any:
        answer = self._questions.request(key, version, spec)
        if answer is None or isinstance(answer, Exception):
            raise RuntimeError(f"no answer to a request of API {key}: {answer!r}")
        return answer

    def _find_topic(self, name: str) -> bytes:
        """Return the id of a topic once its partitions have leaders."""
        for _ in range(STEPS_MAX):
            topic = self._request(3, 12, {"topics": [{"name": name}]}).topics[0]
            if not topic.error_code and all(not each.error_code for each in topic.partitions):
                return bytes(topic.topic_id)
            time.sleep(0.2)
        raise RuntimeError(f"topic {name} has no leaders")

    # -- the groups

    def _heartbeat(self, key: int, version: int, spec: Spec) -> Any:
        """Return the answer of a coordinator, once it is there."""
        for _ in range(STEPS_MAX):
            answer = self._request(key, version, spec)
            if answer.error_code not in {14, 15, 16}:
                break
            time.sleep(0.2)
        if answer.error_code:
            raise RuntimeError(f"error {answer.error_code} of API {key}: {answer.error_message}")
        return answer

    def _consume(self, group: str, member: str, epoch: int, **more: Any) -> Any:
        first: Spec = {"group_id": group, "member_id": member, "member_epoch": epoch}
        return self._heartbeat(68, 1, first | more)

    def _join_consumer(self, group: str, member: str, **more: Any) -> Any:
        fields = {"rebalance_timeout_ms": 60_000, "topic_partitions": []} | more
        if "subscribed_topic_regex" not in fields:
            fields |= {"subscribed_topic_names": [TOPIC]}
        return self._consume(group, member, 0, **fields)

    def _owned(self, *numbers: int) -> list[Spec]:
        return [{"topic_id": self._topic_id, "partitions": list(numbers)}]

    def _walk_consumer_group(self) -> None:
        """One member has everything, a second one gets its half, both leave."""
        group = "consumers"
        first = self._join_consumer(group, "a", rack_id="r1", server_assignor="range")
        epoch = first.member_epoch
        self._consume(group, "a", epoch, topic_partitions=self._owned(0, 1, 2, 3))
        self._join_consumer(group, "b", instance_id="i", server_assignor="range")
        for member, partitions in (("a", (0, 1, 2, 3)), ("a", (0, 1)), ("b", ())):
            known = self._describe(69, group, member)
            more: Spec = {"instance_id": "i"} if member == "b" else {}
            owned = self._owned(*partitions) if partitions else []
            self._consume(group, member, known, topic_partitions=owned, **more)
        self._consume(group, "b", -2, instance_id="i")
        self._consume(group, "b", -1, instance_id="i")
        self._consume(group, "a", -1)

    def _walk_patterns(self) -> None:
        """One member subscribes by a pattern; it gets its partitions when that is resolved."""
        answer = self._join_consumer("patterns", "p", subscribed_topic_regex="ord.*")
        for _ in range(STEPS_MAX):
            if answer.assignment is not None and answer.assignment.topic_partitions:
                break
            time.sleep(0.2)
            answer = self._consume("patterns", "p", answer.member_epoch)
        self._consume("patterns", "p", -1)

    def _walk_share_group(self) -> None:
        group = "sharers"
        first: Spec = {"group_id": group, "member_id": "s"}
        joined = self._heartbeat(76, 1, first | {"subscribed_topic_names": [TOPIC]})
        self._heartbeat(76, 1, first | {"member_epoch": joined.member_epoch})
        self._heartbeat(76, 1, first | {"member_epoch": -1})

    def _walk_streams_group(self) -> None:
        group = "streamers"
        topology = {
            "subtopologies": [
                {"subtopology_id": "0", "source_topics": [TOPIC],
                 "copartition_groups": [{"source_topics": [0]}]},
            ]
        }  # fmt: skip
        tasks: Spec = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
        first: Spec = {"group_id": group, "member_id": "t"}
        join = {"rebalance_timeout_ms": 60_000, "process_id": "p", "topology": topology,
                "user_endpoint": {"host": "here", "port": 99},
                "client_tags": [{"key": "zone", "value": "z"}]}  # fmt: skip
        answer = self._heartbeat(88, 0, first | tasks | join)
        for _ in range(STEPS_MAX):
            if answer.active_tasks:
                break
            time.sleep(0.2)
            answer = self._heartbeat(88, 0, first | {"member_epoch": answer.member_epoch})
        self._heartbeat(88, 0, first | {"member_epoch": -1})

    def _describe(self, key: int, group: str, member: str) -> int:
        """Return the epoch of a member."""
        (found,) = self._request(key, 0, {"group_ids": [group]}).groups
        return next(each.member_epoch for each in found.members if each.member_id == member)

    # -- the records

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._address,
                "group.id": "reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )

    def _read_records(self) -> Records:
        consumer = self._consumer()
        left = set(consumer.list_topics(OFFSETS, timeout=60).topics[OFFSETS].partitions)
        consumer.assign([TopicPartition(OFFSETS, number, 0) for number in left])
        found: Records = {}
        while left:
            message = consumer.poll(60)
            if message is None:
                raise RuntimeError(f"no end of partitions {sorted(left)}")
            problem = message.error()
            if problem is None:
                self._note(found, message.key(), message.value())
            elif problem.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public constant
                left.discard(message.partition())
            else:
                raise RuntimeError(str(problem))
        consumer.close()
        return dict(sorted(found.items()))

    def _note(self, found: Records, key: bytes, value: bytes | None) -> None:
        kind, *texts = read_key(key)
        if kind not in VALUE_OF_KIND:  # of other groups, or the removal of what older brokers wrote
            assert kind < GroupRecordKind.CONSUMER_GROUP or value is None, (
                f"a record of kind {kind}"
            )
            return
        name = " ".join((GroupRecordKind(kind).name, *texts))
        shown = None
        if value is not None:
            shown = self._show(decode_record_value(VALUE_OF_KIND[GroupRecordKind(kind)], value))
        rows = found.setdefault(name, [])
        if not rows or rows[-1] != shown:
            rows.append(shown)

    def _show(self, value: Any) -> Any:
        if dataclasses.is_dataclass(value):
            fields = ((each.name, getattr(value, each.name)) for each in dataclasses.fields(value))
            return {name: self._show_field(name, each) for name, each in fields}
        if isinstance(value, list):
            return [self._show(each) for each in value]
        return value.hex() if isinstance(value, bytes) else value

    def _show_field(self, name: str, value: Any) -> Any:
        if name == "topic_id":
            return TOPIC if value == self._topic_id else "another topic"
        if name in {"metadata_hash", "assignment_timestamp", "timestamp", "version"}:
            return "a number"
        return self._show(value)


def read_key(key: bytes) -> Iterator[Any]:
    """Yield the kind of a key, and its texts as far as it has only texts."""
    kind = int.from_bytes(key[:2], "big")
    yield kind
    place = 2
    while kind >= GroupRecordKind.CONSUMER_GROUP and place < len(key):
        size = int.from_bytes(key[place : place + 2], "big")
        yield key[place + 2 : place + 2 + size].decode()
        place += 2 + size


def walk_trilogue(root: Path) -> Records:
    """Play all groups against a new Trilogue."""
    with start_server(root / "data") as server:
        return GroupWalk(server.kafka).run()


def walk_kafka(root: Path) -> Records:
    """Play all groups against a new Kafka."""
    root.mkdir()
    kafka = RealKafka(root, version=REAL.rpartition(" ")[2]).start()
    try:
        return GroupWalk(kafka.address).run()
    finally:
        kafka.stop()


def read_recorded() -> dict[str, Records]:
    """Return the recorded records of each server."""
    recorded: dict[str, Records] = json.loads(RECORDED.read_text())
    return recorded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ours", action="store_true", help="renew Trilogue's part alone")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        real = read_recorded()[REAL] if chosen.ours else walk_kafka(Path(root) / "kafka")
        write_json(RECORDED, {OURS: walk_trilogue(Path(root)), REAL: real})


if __name__ == "__main__":
    main()
