"""Our Kafka client against a real server of ours, and our client's bytes against other clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import confluent_kafka
import pytest

from tests.client.scripted import HANG_UP, METADATA, OFFSETS, PRODUCE, SILENCE, Part, scripted
from tests.server import Server
from tests.waiting import run_ready_tasks
from trilogue.client.errors import ClientError, ConnectionLost, ServerRefused
from trilogue.client.kafka.admin import Admin
from trilogue.client.kafka.cluster import KafkaCluster, addresses
from trilogue.client.kafka.consumer.batch_reader import BatchReader
from trilogue.client.kafka.model import EARLIEST, LATEST
from trilogue.client.kafka.producer.batch_writer import BatchWriter
from trilogue.entry.kafka.record_batch import Record, build_batch, iter_records
from trilogue.wire.kafka.errors import ErrorCode

HOUR_MS = 3_600_000
BEGAN_MS = 1_700_000_000_000


def records(count: int) -> list[Record]:
    return [
        Record(number, BEGAN_MS + number * HOUR_MS, b"k%d" % number, b"v%d" % number, (), 0)
        for number in range(count)
    ]


def on_cluster(server: Server, work: Callable[[KafkaCluster], Awaitable[object]]) -> object:
    async def connected() -> object:
        cluster = KafkaCluster(server.kafka, timeout_s=10)
        try:
            return await work(cluster)
        finally:
            await cluster.close()

    return asyncio.run(connected())


def test_produced_records_are_fetched_from_any_offset(server: Server):
    async def work(cluster: KafkaCluster) -> object:
        await Admin(cluster).create_topic("fetched", 2)
        producer, consumer = BatchWriter(cluster), BatchReader(cluster)
        first = await producer.send("fetched", 1, build_batch(records(3)))
        second = await producer.send("fetched", 1, build_batch(records(2)))
        fetched = await consumer.fetch("fetched", 1, 4)
        return first, second, [one.offset for one in iter_records(fetched.records)], fetched[1:4]

    assert on_cluster(server, work) == (0, 3, [3, 4], (5, 5, 0))


def test_another_client_reads_what_ours_wrote(server: Server):
    async def work(cluster: KafkaCluster) -> object:
        await Admin(cluster).create_topic("read", 1)
        return await BatchWriter(cluster).send("read", 0, build_batch(records(5), codec=3))

    on_cluster(server, work)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": server.kafka, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["read"])
    found = [message.value() for message in consumer.consume(5, timeout=20)]
    consumer.close()

    assert found == [b"v0", b"v1", b"v2", b"v3", b"v4"]


def test_offsets_are_found_by_time_and_at_both_ends(server: Server):
    async def work(cluster: KafkaCluster) -> object:
        await Admin(cluster).create_topic("times", 2)
        await BatchWriter(cluster).send("times", 0, build_batch(records(10)))
        consumer = BatchReader(cluster)
        requested = [LATEST, EARLIEST, BEGAN_MS + 4 * HOUR_MS - 1, BEGAN_MS + 99 * HOUR_MS]
        return [(await consumer.offsets({("times", 0): one}))["times", 0] for one in requested] + [
            (await consumer.offsets({("times", 1): LATEST}))["times", 1]
        ]

    assert on_cluster(server, work) == [10, 0, 4, -1, 0]


def test_a_fetch_at_the_end_waits_for_what_comes(server: Server):
    async def work(cluster: KafkaCluster) -> object:
        await Admin(cluster).create_topic("waits", 1)
        other = KafkaCluster(server.kafka)
        waiting = asyncio.create_task(BatchReader(cluster).fetch("waits", 0, 0, max_wait_ms=9000))
        await BatchWriter(other).send("waits", 0, build_batch(records(1)))
        fetched = await waiting
        await other.close()
        return fetched.high_watermark

    assert on_cluster(server, work) == 1


def test_refusals_name_the_code_and_what_it_was_about(server: Server):
    async def work(cluster: KafkaCluster) -> object:
        await Admin(cluster).create_topic("refuses", 1)
        with pytest.raises(ServerRefused, match=r"refuses-0 at 7: OFFSET_OUT_OF_RANGE \(1\)"):
            await BatchReader(cluster).fetch("refuses", 0, 7)
        with pytest.raises(ServerRefused, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await cluster.partitions("nowhere")
        with pytest.raises(ServerRefused, match="INVALID_CONFIG"):
            await Admin(cluster).create_topic("odd", 1, {"no.such.setting": "1"})
        return None

    on_cluster(server, work)


def test_topics_are_made_and_removed_once(server: Server):
    async def work(cluster: KafkaCluster) -> object:
        admin = Admin(cluster)
        return [
            await admin.create_topic("once", 3, {"retention.ms": "-1"}),
            await admin.create_topic("once", 3),
            await cluster.partitions("once"),
            await admin.delete_topic("once"),
            await admin.delete_topic("once"),
        ]

    assert on_cluster(server, work) == [True, False, [0, 1, 2], True, False]


def test_a_restart_of_the_server_is_survived(tmp_path_factory: pytest.TempPathFactory):
    from tests.server import start_server

    data = tmp_path_factory.mktemp("restart") / "data"
    first = start_server(data)
    host, port = addresses(first.kafka)[0]

    async def work(cluster: KafkaCluster) -> object:
        await Admin(cluster).create_topic("survives", 1)
        producer = BatchWriter(cluster)
        before = await producer.send("survives", 0, build_batch(records(2)))
        await asyncio.to_thread(first.kill9)
        sending = asyncio.create_task(producer.send("survives", 0, build_batch(records(2))))
        again = await asyncio.to_thread(
            start_server, data, settings={}, listen={"kafka": f"{host}:{port}"}
        )
        after = await sending
        await asyncio.to_thread(again.kill9)
        return before, after

    assert on_cluster(first, work) == (0, 2)


def test_refused_connection_raises_connection_lost():
    async def work() -> None:
        cluster = KafkaCluster("127.0.0.1:1", timeout_s=0.2)
        with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:1"):
            await cluster.topic_names()

    asyncio.run(work())


@pytest.mark.parametrize("text", ["", "host:", ":9092", "host:port", "host:70000"])
def test_an_address_needs_a_host_and_a_port_is_a_number(text: str):
    with pytest.raises(ClientError):
        addresses(text)


def test_addresses_may_be_many_and_of_either_kind():
    assert addresses("a:1, [::1]:2,b") == [("a", 1), ("::1", 2), ("b", 9092)]


def on_scripted(parts, work, timeout_s: float = 10):
    """Run `work` on a scripted server and on its cluster."""
    with scripted(parts) as kafka:

        async def connected() -> object:
            cluster = KafkaCluster(kafka.address, timeout_s=timeout_s)
            try:
                return await work(kafka, cluster)
            finally:
                await cluster.close()
                await run_ready_tasks()

        return asyncio.run(connected())


def test_an_answer_that_never_comes_costs_the_connection_and_is_requested_again():
    async def work(kafka, cluster):
        kafka.next_up[OFFSETS].append(SILENCE)
        return await BatchReader(cluster).offsets({("t", 0): LATEST})

    assert on_scripted({("t", 0): Part(end=5)}, work, timeout_s=0.3) == {("t", 0): 5}


def test_a_batch_is_sent_again_until_the_server_takes_it():
    async def work(kafka, cluster):
        again = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER, SILENCE]
        kafka.next_up[PRODUCE].extend(again)
        await BatchWriter(cluster).send("t", 0, build_batch(records(1)))
        return len(kafka.parts["t", 0].batches)

    assert on_scripted({("t", 0): Part()}, work, timeout_s=0.3) == 1


def test_a_batch_that_is_refused_for_good_is_sent_once():
    async def work(kafka, cluster):
        kafka.next_up[PRODUCE].append(ErrorCode.MESSAGE_TOO_LARGE)
        with pytest.raises(ServerRefused, match="produce to t-0: MESSAGE_TOO_LARGE"):
            await BatchWriter(cluster).send("t", 0, build_batch(records(1)))

    on_scripted({("t", 0): Part()}, work)


def test_a_topic_may_take_the_server_a_moment_to_make():
    """Kafka answers UNKNOWN_TOPIC_OR_PARTITION while it creates the topic."""

    async def work(kafka, cluster):
        unknown = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE]
        kafka.next_up[METADATA].extend(unknown)
        return await cluster.partitions("t", create=True)

    assert on_scripted({("t", 0): Part()}, work) == [0]


def test_a_node_may_learn_a_moment_later_of_a_topic_that_was_just_made():
    async def work(kafka, cluster):
        kafka.next_up[METADATA].extend([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2)
        await cluster.refresh(["t"], is_new=True)
        return sorted(cluster.topics["t"].leaders)

    assert on_scripted({("t", 0): Part()}, work) == [0]


def test_the_cluster_s_own_topics_are_not_among_the_names():
    async def work(kafka, cluster):
        kafka.internal.add("__consumer_offsets")
        return await cluster.topic_names()

    parts = {("b", 0): Part(), ("__consumer_offsets", 0): Part(), ("a", 0): Part()}
    assert on_scripted(parts, work) == ["a", "b"]


def test_node_of_metadata_is_used_when_the_bootstrap_is_gone():
    async def work(kafka, cluster):
        await cluster.partitions("t")
        cluster._bootstrap = [("127.0.0.1", 1)]
        kafka.next_up[OFFSETS].append(HANG_UP)
        await BatchReader(cluster).offsets({("t", 0): LATEST})
        return await cluster.partitions("t")

    assert on_scripted({("t", 0): Part()}, work) == [0]
