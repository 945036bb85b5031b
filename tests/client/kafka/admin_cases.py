"""What our Kafka client promises administrators, for any server; see cases.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client.kafka.cases import (
    QUICK,
    WAIT_S,
    Case,
    Service,
    collecting,
    numbers,
    reader,
    take,
    until,
)
from tests.server import count_nodes
from trilogue.client.kafka import (
    EARLIEST,
    LATEST,
    Change,
    CreatedTopic,
    GroupDescription,
    GroupOffset,
    KafkaError,
    LogDir,
    MemberDescription,
    NewTopic,
    Operation,
    Partition,
    Resource,
    ResourceType,
    Source,
    TopicDescription,
    granted,
)
from trilogue.wire.kafka.errors import ErrorCode

ADMIN_CASES: list[Case] = []
case = collecting(ADMIN_CASES)


def error(outcome: Any) -> ErrorCode:
    assert isinstance(outcome, KafkaError), outcome
    return outcome.error


@case
async def topics_are_made_described_grown_and_removed(service: Service) -> None:
    name, bad = service.topic, "no/such name"
    async with service.client() as client:
        admin = client.admin
        topic = NewTopic(name, 3, settings={"retention.ms": "1234567"})
        only = await admin.create_topics([topic], validate_only=True)
        assert isinstance(only[name], CreatedTopic)
        made = await admin.create_topics([topic, NewTopic(bad)])
        created = made[name]
        assert isinstance(created, CreatedTopic)
        assert created.partitions == 3
        assert created.replication in {1, count_nodes()}  # of a cluster with ack=shared: all
        assert created.settings["retention.ms"].value == "1234567"
        assert error(made[bad]) is ErrorCode.INVALID_TOPIC_EXCEPTION
        again = await admin.create_topics([topic])
        assert error(again[name]) is ErrorCode.TOPIC_ALREADY_EXISTS

        grown = await admin.create_partitions({name: 5, f"{name}.none": 2})
        assert grown[name] is None
        assert error(grown[f"{name}.none"]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        fewer = await admin.create_partitions({name: 2})
        assert error(fewer[name]) is ErrorCode.INVALID_PARTITIONS

        async with asyncio.timeout(WAIT_S):
            while True:  # a real Kafka answers a moment before it shows what it did
                described = await admin.describe_topics([name, f"{name}.none"], operations=True)
                seen = described[name]
                if isinstance(seen, TopicDescription) and len(seen.partitions) == 5:
                    break
        assert error(described[f"{name}.none"]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [one.number for one in seen.partitions] == [0, 1, 2, 3, 4]
        assert all(one.replicas == one.in_sync for one in seen.partitions)
        assert all(one.replicas[0] == one.leader for one in seen.partitions)
        assert seen.topic_id == created.topic_id != bytes(16)
        assert {"read", "write", "describe", "alter"} <= seen.operations
        (listed,) = (one for one in await admin.list_topics() if one.name == name)
        assert (listed.partitions, listed.is_internal) == (5, False)
        assert listed.replication == created.replication

        gone = await admin.delete_topics([name, f"{name}.none"])
        assert gone[name] is None
        assert error(gone[f"{name}.none"]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        async with asyncio.timeout(WAIT_S):
            while name in {one.name for one in await admin.list_topics()}:
                pass


@case
async def settings_are_shown_and_changed_one_by_one(service: Service) -> None:
    async with service.made(1, retention_ms="1000000") as client:
        admin, topic = client.admin, Resource(ResourceType.TOPIC, service.topic)

        async def value(name: str) -> tuple[str | None, Source]:
            found = granted(await admin.describe_configs([topic], names=[name]))[topic][name]
            return found.value, found.source

        async def becomes(name: str, source: Source, wanted: str | None = None) -> None:
            """A real Kafka answers a moment before it shows what it did."""
            async with asyncio.timeout(WAIT_S):
                while True:
                    now = await value(name)
                    if now[1] is source and wanted in {None, now[0]}:
                        return

        await becomes("retention.ms", Source.TOPIC, "1000000")
        assert (await value("max.message.bytes"))[1] is Source.DEFAULT
        changes: dict[str, Any] = {
            "retention.ms": None,
            "max.message.bytes": "2000",
            "cleanup.policy": Change(Operation.APPEND, "compact"),
        }
        assert await admin.alter_configs({topic: changes}) == {topic: None}
        await becomes("retention.ms", Source.DEFAULT)
        await becomes("max.message.bytes", Source.TOPIC, "2000")
        await becomes("cleanup.policy", Source.TOPIC, "delete,compact")
        tried = await admin.alter_configs({topic: {"max.message.bytes": "5"}}, validate_only=True)
        assert tried == {topic: None}
        assert await value("max.message.bytes") == ("2000", Source.TOPIC)
        refused = await admin.alter_configs({topic: {"no.such.setting": "1"}})
        assert error(refused[topic]) is ErrorCode.INVALID_CONFIG
        assert await admin.replace_configs({topic: {"retention.ms": "5000"}}) == {topic: None}
        await becomes("max.message.bytes", Source.DEFAULT)

        everything = granted(await admin.describe_configs([topic], synonyms=True))[topic]
        assert everything["retention.ms"].synonyms[0].value == "5000"
        node = (await admin.describe_cluster()).nodes[0].id
        broker = Resource(ResourceType.BROKER, str(node))
        shown = granted(await admin.describe_configs([broker]))[broker]
        assert shown["num.partitions"].value
        missing = Resource(ResourceType.TOPIC, f"{service.topic}.none")
        assert error((await admin.describe_configs([missing]))[missing]) is (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )


@case
async def groups_are_listed_described_and_removed(service: Service) -> None:
    group = service.topic
    async with service.made(3) as client:
        admin = client.admin
        await numbers(await client.producer(), service.topic, 10)
        consumer = await client.consumer(
            service.topic, group=group, instance_id="me", reset_to=EARLIEST, **QUICK
        )
        await take(consumer, 10)
        described = (await admin.describe_groups([group], operations=True))[group]
        assert isinstance(described, GroupDescription)
        assert (described.type, described.state) == ("classic", "Stable")
        assert (described.protocol_type, described.assignor) == ("consumer", "range")
        (member,) = described.members
        assert isinstance(member, MemberDescription)
        assert member.member_id == consumer.member_id
        assert (member.instance_id, member.client_id) == ("me", "trilogue")
        assert member.topics == (service.topic,)
        assert {one.number for one in member.assignment} == {0, 1, 2}
        assert {"read", "describe", "delete"} <= described.operations
        (listed,) = (one for one in await admin.list_groups() if one.name == group)
        assert (listed.protocol_type, listed.state, listed.type) == (
            "consumer", "Stable", "classic",
        )  # fmt: skip
        names = {one.name for one in await admin.list_groups(states=["Empty"])}
        assert group not in names
        assert group in {one.name for one in await admin.list_groups(types=["classic"])}

        busy = await admin.delete_groups([group, f"{group}.none"])
        assert error(busy[group]) is ErrorCode.NON_EMPTY_GROUP
        assert error(busy[f"{group}.none"]) is ErrorCode.GROUP_ID_NOT_FOUND
        await consumer.close()


@case
async def positions_of_groups_are_shown_set_and_removed(service: Service) -> None:
    group, first, second = service.topic, (service.topic, 0), (service.topic, 1)
    async with service.made(2) as client:
        admin = client.admin
        await numbers(await client.producer(), service.topic, 10, partition=0)
        assert await admin.group_offsets(group) == {}
        moved = await admin.alter_group_offsets(group, {first: 4, second: GroupOffset(0, "why")})
        assert moved == {Partition(*first): None, Partition(*second): None}
        shown = granted(await admin.group_offsets(group))
        assert shown[Partition(*first)].offset == 4
        assert shown[Partition(*second)] == GroupOffset(0, "why", -1)
        consumer = await client.consumer(service.topic, group=group, reset_to=EARLIEST, **QUICK)
        assert [one.offset for one in await take(consumer, 6)] == [4, 5, 6, 7, 8, 9]
        refused = await admin.alter_group_offsets(group, {first: 0})
        assert error(refused[Partition(*first)]) is ErrorCode.UNKNOWN_MEMBER_ID
        read = await admin.delete_group_offsets(group, [first])
        assert error(read[Partition(*first)]) is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        await consumer.close()

        assert await admin.delete_group_offsets(group, [first]) == {Partition(*first): None}
        assert set(await admin.group_offsets(group)) == {Partition(*second)}
        assert await admin.delete_groups([group]) == {group: None}
        assert await admin.group_offsets(group) == {}
        with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
            await admin.delete_group_offsets(group, [first])


@case
async def offsets_are_found_and_records_deleted(service: Service) -> None:
    place, other = Partition(service.topic, 0), Partition(service.topic, 7)
    async with service.made() as client:
        admin, producer = client.admin, await client.producer()
        for number in range(5):
            await producer.submit(service.topic, b"x", timestamp_ms=1000 + number)
        await producer.flush()
        found = []
        for time in (EARLIEST, LATEST, 1002, 5000):
            outcome = (await admin.list_offsets({place: time}))[place]
            found.append(granted({place: outcome})[place].offset)
        assert found == [0, 5, 2, -1]
        unknown = await admin.list_offsets({other: LATEST})
        assert error(unknown[other]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        assert await admin.delete_records({place: 3}) == {place: 3}
        assert granted(await admin.list_offsets({place: EARLIEST}))[place].offset == 3
        beyond = await admin.delete_records({place: 99, other: 1})
        assert error(beyond[place]) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert error(beyond[other]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await admin.delete_records({place: -1}) == {place: 5}


@case
async def the_cluster_and_its_disks_are_described(service: Service) -> None:
    async with service.made(2) as client:
        producer = await client.producer()
        await producer.send(service.topic, bytes(10_000), partition=1)
        cluster = await client.admin.describe_cluster(operations=True)
        host, port = service.address.rsplit(":", 1)
        nodes = [(one.host, one.port) for one in cluster.nodes]
        assert (host, int(port)) in nodes
        assert len(nodes) == count_nodes()
        assert cluster.cluster_id
        assert "create" in cluster.operations
        versions = await client.admin.api_versions()
        assert versions[18][1] >= 3

        dirs = await client.admin.log_dirs([(service.topic, 0), (service.topic, 1)])
        found = [only for (only,) in dirs.values() if isinstance(only, LogDir)]
        assert len(found) == len(nodes)
        sizes = {
            place: each.size_bytes for only in found for place, each in only.partitions.items()
        }
        assert set(sizes) == {(service.topic, 0), (service.topic, 1)}
        assert sizes[Partition(service.topic, 1)] > 10_000
        assert all(only.total_bytes > only.usable_bytes > 0 for only in found)


@case
async def a_consumer_without_a_group_has_none_to_describe(service: Service) -> None:
    async with service.made() as client:
        consumer = await reader(client, service.topic)
        await until(lambda: True, consumer)
        found = (await client.admin.describe_groups([f"{service.topic}.none"])).values()
        states = [one.state for one in found if isinstance(one, GroupDescription)]
        missing = [one.error for one in found if isinstance(one, KafkaError)]
        assert states == ["Dead"] or missing == [ErrorCode.GROUP_ID_NOT_FOUND]
