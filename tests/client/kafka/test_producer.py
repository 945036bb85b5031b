"""Sending: batches by partition, one request for each node, order, sequences, bounds, ends."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from tests.client.kafka.scripted import (
    HANG_UP,
    IDS,
    METADATA,
    PRODUCE,
    SILENCE,
    TOPIC,
    ScriptedKafkaCluster,
    on_cluster,
    refusing,
)
from tests.waiting import run_ready_tasks
from trilogue.client.errors import ClientError, Unsupported
from trilogue.client.kafka import (
    Acks,
    BulkRecord,
    ClosedError,
    Compression,
    KafkaClient,
    KafkaError,
    MessageTooLarge,
    Producer,
    QueueFull,
    TimedOut,
    WhenFull,
)
from trilogue.client.kafka.options import ProducerOptions
from trilogue.entry.kafka.record_batch import iter_records
from trilogue.wire.kafka.errors import ErrorCode

QUICK = {"retry_pause_s": 0.01}
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def submit(producer: Producer, *places: tuple[int, bytes]) -> list[asyncio.Future[Any]]:
    return [await producer.submit(TOPIC, value, partition=number) for number, value in places]


def stored(cluster: ScriptedKafkaCluster, partition: int = 0) -> list[bytes | None]:
    batches = cluster.batches.get((TOPIC, partition), [])
    return [record.value for batch in batches for record in iter_records(batch)]


@on_cluster(topics={TOPIC: 4, "u": 4}, nodes=2)
async def test_one_request_for_each_node_carries_all_ready_batches(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    """`<partition, Deque<ProducerBatch>>` becomes `<Node, List<ProducerBatch>>`, by
    topic first and by partition then."""
    producer = await client.producer(linger_s=5.0)
    for topic in (TOPIC, "u"):
        for number in range(4):
            for value in (b"a", b"b"):
                await producer.submit(topic, value, partition=number)
    await producer.flush()

    requested = [(node, one) for node, name, one in cluster.at_node if name == PRODUCE]
    assert sorted(node for node, _ in requested) == [1, 2]
    for node, request in requested:
        assert sorted(topic.name for topic in request.topic_data) == [TOPIC, "u"]
        for topic in request.topic_data:
            assert {one.index % 2 for one in topic.partition_data} == {node - 1}
    assert {header.record_count for header in cluster.sent()} == {2}


@on_cluster
async def test_a_request_is_not_larger_than_it_may_be(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    producer = await client.producer(
        linger_s=5.0, batch_bytes=1000, max_request_bytes=2100, max_memory_bytes=1 << 20
    )
    await submit(producer, *[(number, bytes(800)) for number in range(3)])
    await producer.flush()

    counts = [len(one.topic_data[0].partition_data) for one in cluster.all(PRODUCE)]
    assert sorted(counts) == [1, 2]


@on_cluster
async def test_batches_linger_unless_they_are_full_or_flushed(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    producer = await client.producer(linger_s=0.05, batch_bytes=1000)
    (first,) = await submit(producer, (0, b"a"))
    await submit(producer, (0, b"b"), (1, bytes(900)), (1, bytes(900)))
    await cluster.saw(PRODUCE)
    full = [one.index for one in cluster.all(PRODUCE)[0].topic_data[0].partition_data]
    await first
    await submit(producer, (2, b"c"))
    await producer.flush()

    assert full == [1]
    assert [header.record_count for header in cluster.sent()] == [1, 2, 1, 1]


@on_cluster
async def test_at_most_so_many_requests_are_under_way(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    cluster.next_up[PRODUCE].extend([SILENCE] * 2)
    producer = await client.producer(max_in_flight=2, close_timeout_s=0.01)
    for seen, value in enumerate((b"a", b"b"), 1):
        await submit(producer, (0, value))
        await cluster.saw(PRODUCE, seen)
    await submit(producer, (0, b"c"), (0, b"d"))
    await run_ready_tasks()

    assert len(cluster.all(PRODUCE)) == 2
    (waits,) = producer._accumulator.queues[TOPIC, 0].batches  # the others went together
    assert waits.count == 2


@on_cluster
async def test_producer_without_idempotence_has_one_batch_in_flight_per_partition(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    cluster.next_up[PRODUCE].append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    producer = await client.producer(idempotent=False, **QUICK)
    for value in (b"a", b"b", b"c"):
        await submit(producer, (0, value))
        await run_ready_tasks()
    await producer.flush()

    assert stored(cluster) == [b"a", b"b", b"c"]
    assert not cluster.all(IDS)
    assert {header.producer_id for header in cluster.sent()} == {-1}


@on_cluster
async def test_acks_0_expect_no_answer(cluster: ScriptedKafkaCluster, client: KafkaClient):
    """Acks 0 = no response at all; whatever comes next is the answer to the next."""
    producer = await client.producer(acks=Acks.NONE)
    sent = [await producer.send(TOPIC, b"%d" % one, partition=0) for one in range(3)]
    await cluster.saw(PRODUCE, 3)

    assert [one.offset for one in sent] == [-1, -1, -1]
    assert stored(cluster) == [b"0", b"1", b"2"]
    assert {request.acks for request in cluster.all(PRODUCE)} == {0}


@on_cluster
async def test_sequences_count_records_by_partition(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    """Sequences are per record; each batch begins where the one before ended."""
    producer = await client.producer()
    for count in (3, 2, 4):
        await submit(producer, *[(0, b"x")] * count, (1, b"y"))
        await producer.flush()

    first = [one for one in cluster.sent() if one.record_count > 1]
    assert [one.base_sequence for one in first] == [0, 3, 5]
    assert [one.base_sequence for one in cluster.sent() if one.record_count == 1] == [0, 1, 2]
    assert {(one.producer_id, one.producer_epoch) for one in cluster.sent()} == {(1000, 0)}


@on_cluster
async def test_retried_batches_keep_order_and_sequence(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    """KIP-360 and Java: batches behind one that failed get 45, and are sent again in order."""
    producer = await client.producer(**QUICK)
    await producer.send(TOPIC, b"0", partition=0)
    cluster.next_up[PRODUCE].extend([ErrorCode.NOT_LEADER_OR_FOLLOWER, OUT_OF_ORDER, OUT_OF_ORDER])
    futures = []
    for value in (b"a", b"b", b"c"):
        futures += await submit(producer, (0, value))
        await run_ready_tasks()
    await producer.flush()

    assert stored(cluster) == [b"0", b"a", b"b", b"c"]
    assert [future.result().offset for future in futures] == [1, 2, 3]
    sent = cluster.sent()
    assert [one.base_sequence for one in sent] == [0, 1, 2, 3, 1, 2, 3]
    assert {one.producer_epoch for one in sent} == {0}


@pytest.mark.parametrize("code", [OUT_OF_ORDER, ErrorCode.UNKNOWN_PRODUCER_ID])
@on_cluster
async def test_a_server_that_lost_count_sees_a_new_epoch(
    cluster: ScriptedKafkaCluster, client: KafkaClient, code: ErrorCode
):
    """KIP-360: the producer raises the epoch by itself, and sequences begin at 0."""
    producer = await client.producer(**QUICK)
    await producer.send(TOPIC, b"a", partition=0)
    await producer.send(TOPIC, b"other", partition=1)
    cluster.next_up[PRODUCE].append(code)
    await producer.send(TOPIC, b"b", partition=0)
    await producer.send(TOPIC, b"c", partition=0)
    await producer.send(TOPIC, b"other", partition=1)

    numbers = [(one.producer_epoch, one.base_sequence) for one in cluster.sent()]
    assert numbers == [(0, 0), (0, 0), (0, 1), (1, 0), (1, 1), (0, 1)]
    assert stored(cluster) == [b"a", b"b", b"c"]
    assert len(cluster.all(IDS)) == 1


@on_cluster
async def test_duplicate_sequence_number_succeeds_without_offset(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    """46 is for duplicates older than the window; clients treat it as success."""
    producer = await client.producer(**QUICK)
    cluster.next_up[PRODUCE].append(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    sent = await producer.send(TOPIC, b"a", partition=0)

    assert sent.offset == -1
    assert len(cluster.all(PRODUCE)) == 1


@on_cluster
async def test_after_the_last_epoch_comes_another_producer_id(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    producer = await client.producer(**QUICK)
    await producer.send(TOPIC, b"a", partition=0)
    queue = producer._accumulator.queues[TOPIC, 0]
    queue.identity = queue.identity._replace(epoch=32767)
    cluster.next_up[PRODUCE].append(OUT_OF_ORDER)
    await producer.send(TOPIC, b"b", partition=0)

    last = cluster.sent()[-1]
    assert (last.producer_id, last.producer_epoch, last.base_sequence) == (1001, 0, 0)


@on_cluster
async def test_a_refusal_is_of_its_batch_alone(cluster: ScriptedKafkaCluster, client: KafkaClient):
    producer = await client.producer(linger_s=5.0, **QUICK)
    cluster.next_up[PRODUCE].append(refusing({1: ErrorCode.INVALID_RECORD}))
    futures = await submit(producer, (0, b"a"), (1, b"b"), (2, b"c"))
    await producer.flush()

    assert isinstance(futures[1].exception(), KafkaError)
    assert futures[1].exception().error is ErrorCode.INVALID_RECORD
    assert [futures[0].result().partition, futures[2].result().partition] == [0, 2]
    assert len(cluster.all(PRODUCE)) == 1


@on_cluster
async def test_batch_too_large_for_the_server_is_split(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    producer = await client.producer(linger_s=5.0, **QUICK)
    cluster.next_up[PRODUCE].extend([ErrorCode.MESSAGE_TOO_LARGE])
    futures = await submit(producer, *[(0, b"%d" % one) for one in range(5)])
    await producer.flush()

    assert [one.record_count for one in cluster.sent()] == [5, 2, 3]
    assert stored(cluster) == [b"0", b"1", b"2", b"3", b"4"]
    assert [future.result().offset for future in futures] == [0, 1, 2, 3, 4]
    assert producer.bytes_waiting == 0


@on_cluster
async def test_a_connection_that_breaks_means_sending_again(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    producer = await client.producer(**QUICK)
    cluster.next_up[PRODUCE].append(HANG_UP)
    sent = await producer.send(TOPIC, b"a", partition=0)

    assert sent.offset == 0
    assert [one.base_sequence for one in cluster.sent()] == [0, 0]


@on_cluster
async def test_record_fails_at_the_delivery_timeout(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    producer = await client.producer(delivery_timeout_s=0.1, **QUICK)
    cluster.next_up[PRODUCE].extend([ErrorCode.NOT_ENOUGH_REPLICAS] * 100)
    with pytest.raises(TimedOut, match="NOT_ENOUGH_REPLICAS"):
        await producer.send(TOPIC, b"a", partition=0)
    cluster.next_up[PRODUCE].clear()

    assert (await producer.send(TOPIC, b"b", partition=0)).offset == 0
    assert producer.bytes_waiting == 0


@on_cluster
async def test_unsent_record_expires(cluster: ScriptedKafkaCluster, client: KafkaClient):
    producer = await client.producer(delivery_timeout_s=0.1, **QUICK)
    cluster.next_up[IDS].extend([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 100)
    with pytest.raises(TimedOut):
        await producer.send(TOPIC, b"a", partition=0)

    assert not cluster.all(PRODUCE)


@on_cluster
async def test_memory_is_limited_and_waiting_sends_are_served_in_order(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    options: dict[str, Any] = {
        "batch_bytes": 1000, "max_request_bytes": 1000, "max_memory_bytes": 1000,
        "max_in_flight": 1, "close_timeout_s": 0.01,
    }  # fmt: skip
    cluster.next_up[PRODUCE].append(SILENCE)
    producer = await client.producer(max_wait_s=0.05, **options)
    await submit(producer, (0, bytes(700)))
    with pytest.raises(TimedOut, match="no memory"):
        await submit(producer, (0, bytes(700)))
    assert producer.bytes_waiting <= 1000
    refusing_one = await client.producer(when_full=WhenFull.RAISE, linger_s=5.0, **options)
    await submit(refusing_one, (0, bytes(700)))
    with pytest.raises(QueueFull):
        await submit(refusing_one, (0, bytes(700)))

    patient = await client.producer(**options)
    waiting = [asyncio.ensure_future(submit(patient, (0, b"%0700d" % one))) for one in range(5)]
    await asyncio.gather(*waiting)
    await patient.flush()
    assert [int(value or b"") for value in stored(cluster)] == list(range(5))


@on_cluster
async def test_cancelled_wait_for_memory_reserves_none(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    producer = await client.producer(
        batch_bytes=1000, max_request_bytes=1000, max_memory_bytes=1000, linger_s=5.0
    )
    await submit(producer, (0, bytes(700)))
    gone = asyncio.ensure_future(submit(producer, (0, bytes(700))))
    behind = asyncio.ensure_future(submit(producer, (0, bytes(100))))
    await run_ready_tasks()
    gone.cancel()
    await behind
    await producer.flush()

    assert producer.bytes_waiting == 0
    assert [len(value or b"") for value in stored(cluster)] == [700, 100]


@on_cluster
async def test_a_node_that_throttles_is_left_alone(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    """KIP-219: the answer comes at once, and the client waits."""

    def throttled(_request: Any, answer: Any) -> Any:
        answer.throttle_time_ms = 80
        return answer

    cluster.next_up[PRODUCE].append(throttled)
    producer = await client.producer()
    await producer.send(TOPIC, b"a", partition=0)
    began = asyncio.get_running_loop().time()
    await producer.send(TOPIC, b"b", partition=0)

    assert asyncio.get_running_loop().time() - began > 0.07


@on_cluster
async def test_servers_that_know_no_producer_ids_are_sent_to_without(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    del cluster.served[22]
    producer = await client.producer()
    await producer.send(TOPIC, b"a", partition=0)
    strict = await client.producer(idempotent=True)
    with pytest.raises(Unsupported):
        await strict.send(TOPIC, b"b", partition=0)

    assert stored(cluster) == [b"a"]


@on_cluster
async def test_codec_that_an_old_server_lacks_is_not_sent(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    cluster.served[0] = (0, 6)
    zstd = await client.producer(compression=Compression.ZSTD)
    with pytest.raises(Unsupported, match="zstd"):
        await zstd.send(TOPIC, b"a")
    assert (await (await client.producer()).send(TOPIC, b"b")).offset == 0


@on_cluster
async def test_leaders_that_moved_are_requested(cluster: ScriptedKafkaCluster, client: KafkaClient):
    producer = await client.producer(**QUICK)
    await producer.send(TOPIC, b"a", partition=0)
    before = len(cluster.all(METADATA))
    cluster.next_up[PRODUCE].append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    await producer.send(TOPIC, b"b", partition=0)

    assert len(cluster.all(METADATA)) == before + 1


@on_cluster
async def test_closing_sends_what_waits_and_gives_up_what_takes_too_long(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    producer = await client.producer(linger_s=60.0)
    (lingers,) = await submit(producer, (0, b"a"))
    await producer.close()
    cluster.next_up[PRODUCE].append(SILENCE)
    stuck = await client.producer(close_timeout_s=0.05)
    (lost,) = await submit(stuck, (0, b"b"))
    await stuck.close()

    assert lingers.result().offset == 0
    assert isinstance(lost.exception(), ClosedError)
    with pytest.raises(ClosedError):
        await producer.send(TOPIC, b"c")


@on_cluster
async def test_cancelled_future_affects_no_other_record(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    producer = await client.producer(linger_s=5.0)
    futures = await submit(producer, (0, b"a"), (0, b"b"))
    futures[0].cancel()
    await producer.flush()

    assert futures[1].result().offset == 1


@on_cluster
async def test_messages_without_a_key_stay_with_a_partition_for_a_batch(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    """KIP-480, KIP-794: then the next one, never the same again."""
    producer = await client.producer(batch_bytes=1000)
    futures = [await producer.submit(TOPIC, bytes(100)) for _ in range(200)]
    await producer.flush()
    went = [future.result().partition for future in futures]
    changes = sum(one != other for one, other in itertools.pairwise(went))

    assert set(went) == {0, 1, 2}
    assert 20 <= changes <= 30


@on_cluster
async def test_a_partitioner_of_ones_own_decides(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    producer = await client.producer(partitioner=lambda key, count: len(key or b"") % count)
    assert (await producer.send(TOPIC, b"x", key=b"abcd")).partition == 1
    wrong = await client.producer(partitioner=lambda _key, count: count)
    with pytest.raises(ClientError, match="chose 3 of 3"):
        await wrong.send(TOPIC, b"x")


@on_cluster
async def test_a_message_larger_than_a_request_is_refused_at_once(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    producer = await client.producer(max_request_bytes=100_000)
    with pytest.raises(MessageTooLarge):
        await producer.send(TOPIC, bytes(100_000))
    assert producer.bytes_waiting == 0


@pytest.mark.parametrize(
    "options",
    [
        {"acks": Acks.LEADER, "idempotent": True},
        {"max_in_flight": 0},
        {"max_in_flight": 6, "idempotent": True},
        {"batch_bytes": 2 << 20},
        {"max_memory_bytes": 1000},
        {"linger_s": -1},
        {"delivery_timeout_s": 0},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]):
    with pytest.raises(ClientError):
        ProducerOptions(**options)


@on_cluster(topics={TOPIC: 3})
async def test_many_records_have_one_future(cluster: ScriptedKafkaCluster, client: KafkaClient):
    """Without key they stay together until a batch is full; errors name the record."""
    producer = await client.producer(batch_bytes=4000, max_request_bytes=5000, **QUICK)
    records = [b"%d" % number for number in range(500)]
    assert await producer.send_many(TOPIC, records) == 500
    by_partition = [stored(cluster, number) for number in range(3)]
    assert sorted(by_partition[0] + by_partition[1] + by_partition[2]) == sorted(records)
    for values in by_partition:
        assert values == sorted(values, key=lambda value: int(value or b""))
    assert sum(map(len, cluster.batches.values())) < 10

    mixed = [b"first", b"x" * 6000, BulkRecord(b"keyed", key=b"k", headers={"h": b"1"}),
             BulkRecord(b"none", partition=9), BulkRecord(None, key="k")]  # fmt: skip
    delivery = await (await producer.submit_bulk(TOPIC, mixed))
    assert delivery.stored == 3
    assert type(delivery.failures[1]) is MessageTooLarge
    assert type(delivery.failures[3]) is KafkaError
    assert sorted(delivery.failures) == [1, 3]
    keyed = next(values for n in range(3) if b"keyed" in (values := stored(cluster, n)))
    assert keyed[-1] is None
    one = await producer.send(TOPIC, b"same key", key=b"k")
    assert stored(cluster, one.partition)[-2:] == [None, b"same key"]
    with pytest.raises(MessageTooLarge):
        await producer.send_many(TOPIC, mixed)
    assert await producer.send_many(TOPIC, []) == 0
    assert producer.bytes_waiting == 0
    await producer.close()
    with pytest.raises(ClosedError):
        await producer.send_many(TOPIC, records)


@on_cluster(topics={TOPIC: 1})
async def test_many_records_fail_as_single_ones_do(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    producer = await client.producer(delivery_timeout_s=0.2, create_topics=False, **QUICK)
    with pytest.raises(KafkaError):
        await producer.send_many("unknown", [b"1"])
    cluster.next_up[PRODUCE].append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    delivery = await (await producer.submit_bulk(TOPIC, [b"1", b"2"]))
    assert [type(problem) for problem in delivery.failures.values()] == [KafkaError, KafkaError]
    cluster.next_up[PRODUCE].append(SILENCE)
    with pytest.raises(TimedOut):
        await producer.send_many(TOPIC, [b"1", b"2"])
