"""Produce: answered when durable, refused with the right code, silent for acks 0."""

from __future__ import annotations

import struct

import pytest

from tests.gateway.kafka.rig import NOW_MS, Rig, batch, patched, settle, versions
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.entry.kafka.record_batch import iter_records
from trilogue.wire.kafka.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def request(
    topic: str,
    records: bytes | None,
    *,
    index: int = 0,
    acks: int = -1,
    topic_id: bytes = bytes(16),
) -> ProduceRequest:
    data = PartitionProduceData(index=index, records=records)
    return ProduceRequest(
        acks=acks,
        timeout_ms=1_000,
        topic_data=[TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])],
    )


def only(response):
    (topic,) = response.responses
    (partition,) = topic.partition_responses
    return partition


def stored(rig: Rig, topic, index: int = 0) -> list[bytes]:
    plog = topic.partitions[index].log
    data = b"".join(plog.read(plog.start_offset, 1 << 30).slices)
    values = []
    while data:
        (length,) = struct.unpack_from(">i", data, 8)
        values += [record.value for record in iter_records(data[: length + 12])]
        data = data[length + 12 :]
    return values


@pytest.mark.parametrize("version", versions(0))
@on_loop
async def test_every_version_appends_and_returns_the_base_offset(version):
    async with Rig() as rig:
        topic = rig.topic("t", partitions=2)
        peer = rig.peer()

        for number in range(3):  # the first by the codec, the others by its template
            response = await peer.request(
                request("t", batch(f"a{number}", "b"), index=1, topic_id=topic.topic_id), version
            )

            assert only(response).error_code == 0
            assert only(response).index == 1
            assert only(response).base_offset == 2 * number
            assert response.responses[0].name == ("t" if version < 13 else "")
        assert stored(rig, topic, 1) == [b"a0", b"b", b"a1", b"b", b"a2", b"b"]


@on_loop
async def test_the_answer_leaves_only_when_the_batch_is_durable():
    """An acknowledged message is on disk."""
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()
        durable_before = rig.log.journal.durable_through

        peer.send(request("t", batch("a")), 7)
        assert peer.answered == 0
        await settle()

        assert peer.answered == 1
        assert rig.log.journal.durable_through == durable_before + 1


@on_loop
async def test_requests_of_one_turn_share_one_commit_and_one_write():
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()
        await peer.request(request("t", batch("first")), 7)
        commits, writes = rig.log.journal.counts.commits, peer.transport.writes
        body = bytes(peer.transport.frames()[-1])
        assert body
        peer.stream.stop(1)  # so that all of them wait for one loop iteration
        peer.transport.reading = True
        for number in range(10):
            peer.send(request("t", batch(f"{number}")), 7)

        peer.stream.go_on(1)
        peer.transport.reading = False
        await settle()

        assert [only(peer.answer()).base_offset for _ in range(10)] == list(range(1, 11))
        assert rig.log.journal.counts.commits == commits + 1
        assert peer.transport.writes == writes + 1


@on_loop
async def test_a_failed_write_is_a_storage_error_and_never_an_ack():
    """KAFKA_STORAGE_ERROR 56."""
    async with Rig() as rig:
        rig.topic("t")
        peer, other = rig.peer(), rig.peer()
        await peer.request(request("t", batch("learned")), 7)
        rig.fs.fail("write")

        peer.send(request("t", batch("by its shape")), 7)
        other.send(request("t", batch("by the codec")), 9)
        await peer.wait()
        await other.wait()

        assert only(peer.answer()).error_code == 56
        answer = only(other.answer())
        assert (answer.error_code, answer.base_offset) == (56, -1)


@pytest.mark.parametrize("acks", [1, -1])
@on_loop
async def test_acks_of_the_leader_and_of_all_are_the_same_durable_copy(acks):
    async with Rig() as rig:
        rig.topic("t")

        assert (
            only(await rig.peer().request(request("t", batch("a"), acks=acks), 7)).error_code == 0
        )


@pytest.mark.parametrize("acks", [2, -2, 100])
@on_loop
async def test_other_acks_are_refused(acks):
    """Other values of acks are INVALID_REQUIRED_ACKS (21)."""
    async with Rig() as rig:
        topic = rig.topic("t")

        answer = only(await rig.peer().request(request("t", batch("a"), acks=acks), 7))

        assert answer.error_code == 21
        assert stored(rig, topic) == []


@on_loop
async def test_acks_0_has_no_answer():
    async with Rig() as rig:
        topic = rig.topic("t")
        peer = rig.peer()

        for _ in range(3):
            peer.send(request("t", batch("a"), acks=0), 7)
            peer.sends_nothing_back()
        await settle()

        assert peer.transport.written == b""
        assert not peer.is_cut
        assert stored(rig, topic) == [b"a"] * 3
        assert only(await peer.request(request("t", batch("b")), 7)).base_offset == 3


@on_loop
async def test_acks_0_that_fails_closes_the_connection(caplog):
    async with Rig() as rig:
        peer = rig.peer()

        peer.send(request("nowhere", batch("a"), acks=0), 7)

        assert peer.is_cut
        assert "produce.failed_unanswered" in caplog.messages


def damaged(records: bytes, at: int, value: int) -> bytes:
    return records[:at] + bytes([value]) + records[at + 1 :]


GOOD = batch("a")
BAD = {
    "nothing": (None, 87),
    "empty": (b"", 87),
    "short": (GOOD[:40], 87),
    "cut": (GOOD[:-1], 87),
    "crc": (damaged(GOOD, len(GOOD) - 1, 0xFF), 2),
    "magic 1": (damaged(GOOD, 16, 1), 87),
    "two batches": (GOOD + GOOD, 87),
    "format bits": (patched(GOOD, 21, ">h", 0x100), 87),
    "reserved bits": (patched(GOOD, 21, ">h", 0x80), 87),
    "unknown codec": (patched(GOOD, 21, ">h", 5), 76),
    "count": (patched(GOOD, 57, ">i", 2), 87),
    "negative count": (patched(GOOD, 57, ">i", -1), 87),
    "last delta": (patched(GOOD, 23, ">i", 2**31 - 1), 87),
    "length": (GOOD[:8] + struct.pack(">i", 2**31 - 1) + GOOD[12:], 87),
    "negative length": (GOOD[:8] + struct.pack(">i", -1) + GOOD[12:], 2),
    "control": (batch("a", control=True, transactional=True), 87),
    "transactional": (batch("a", transactional=True, producer_id=1, producer_epoch=0,
                            base_sequence=0), 53),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
@on_loop
async def test_bad_batches_are_refused_and_nothing_is_appended(kind):
    """The broker checks every batch itself."""
    records, code = BAD[kind]
    async with Rig() as rig:
        topic = rig.topic("t")
        peer = rig.peer()
        await peer.request(request("t", batch("good")), 7)

        for version in (7, 9):
            assert only(await peer.request(request("t", records), version)).error_code == code
        assert stored(rig, topic) == [b"good"]
        assert not peer.is_cut


@on_loop
async def test_a_batch_above_the_topics_limit_is_too_large():
    async with Rig() as rig:
        rig.topic("t", max_message_bytes="1000")
        answer = only(await rig.peer().request(request("t", batch("x" * 1_000)), 9))

        assert answer.error_code == 10
        assert "1000" in answer.error_message


@pytest.mark.parametrize("name", ["missing", "bad name!", "..", "", "t-partition-0", "x" * 300])
@on_loop
async def test_a_topic_that_is_not_there_is_unknown(name):
    async with Rig() as rig:
        rig.topic("t")

        assert only(await rig.peer().request(request(name, batch("a")), 7)).error_code == 3


@pytest.mark.parametrize("index", [-1, 1, 2**31 - 1])
@on_loop
async def test_a_partition_that_is_not_there_is_unknown(index):
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()
        await peer.request(request("t", batch("a")), 7)

        assert only(await peer.request(request("t", batch("a"), index=index), 7)).error_code == 3


@on_loop
async def test_an_id_that_no_topic_has_is_unknown():
    async with Rig() as rig:
        rig.topic("t")

        answer = await rig.peer().request(request("", batch("a"), topic_id=bytes(range(16))), 13)

        assert only(answer).error_code == 100


@on_loop
async def test_produce_is_denied_after_write_permission_is_removed():
    async with Rig() as rig:
        topic = rig.topic("t")
        peer = rig.peer()
        await peer.request(request("t", batch("a")), 7)
        await peer.request(request("t", batch("b")), 7)

        rig.rules.deny(Operation.WRITE, ResourceKind.TOPIC, "public/default/t")

        assert only(await peer.request(request("t", batch("c")), 7)).error_code == 29
        assert stored(rig, topic) == [b"a", b"b"]


@on_loop
async def test_a_terminated_topic_takes_no_batch():
    async with Rig() as rig:
        topic = rig.topic("t")
        topic.partitions[0].terminated = True

        answer = only(await rig.peer().request(request("t", batch("a")), 7))

        assert answer.error_code == 44  # POLICY_VIOLATION: clients do not retry
        assert stored(rig, topic) == []


@on_loop
async def test_a_topic_made_again_under_its_name_is_another_topic():
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()
        for _ in range(3):
            await peer.request(request("t", batch("old")), 7)
        plan = rig.broker.cluster.plan_delete(rig.gateway.topic("t").name)
        rig.meta.write_now(plan.ops(), plan.preconditions)
        plan.apply()
        assert only(await peer.request(request("t", batch("between")), 7)).error_code == 3
        topic = rig.topic("t")

        for number in range(3):
            answer = only(await peer.request(request("t", batch("new")), 7))
            assert (answer.error_code, answer.base_offset) == (0, number)
        assert stored(rig, topic) == [b"new"] * 3


@on_loop
async def test_a_repeated_batch_gets_its_offset_again_and_is_stored_once():
    """idempotence."""
    async with Rig() as rig:
        topic = rig.topic("t")
        peer = rig.peer()
        signed = {"producer_id": 7, "producer_epoch": 0}

        for sequence in (0, 0, 1, 0, 1):
            answer = only(
                await peer.request(request("t", batch("a", base_sequence=sequence, **signed)), 7)
            )
            assert (answer.error_code, answer.base_offset) == (0, sequence)
        answer = only(await peer.request(request("t", batch("a", base_sequence=5, **signed)), 7))
        assert answer.error_code == 45
        assert stored(rig, topic) == [b"a", b"a"]


@on_loop
async def test_log_append_time_is_reported():
    async with Rig() as rig:
        rig.topic("t", message_timestamp_type="LogAppendTime")
        rig.now_ms = NOW_MS + 5
        peer = rig.peer()

        for _ in range(3):
            answer = only(await peer.request(request("t", batch("a", timestamp=1)), 7))
            assert answer.log_append_time_ms == NOW_MS + 5


@pytest.mark.parametrize(("version", "code"), [(3, 76), (6, 76), (7, 0)])
@on_loop
async def test_zstd_is_refused_in_requests_older_than_it(version, code):
    """zstd needs Produce v7, also where the request has a template."""
    async with Rig() as rig:
        topic = rig.topic("t")
        peer = rig.peer()
        for value in ("a", "b"):
            await peer.request(request("t", batch(value)), version)

        answer = only(await peer.request(request("t", batch("c", codec=4)), version))

        assert answer.error_code == code
        assert stored(rig, topic)[:2] == [b"a", b"b"]
        assert len(stored(rig, topic)) == (2 if code else 3)


@on_loop
async def test_one_bad_partition_does_not_spoil_the_others():
    async with Rig() as rig:
        rig.topic("t", partitions=3)
        data = [
            PartitionProduceData(index=index, records=records)
            for index, records in ((0, batch("a")), (1, b"junk"), (9, batch("a")), (2, batch("b")))
        ]
        requested = ProduceRequest(
            acks=-1, topic_data=[TopicProduceData(name="t", partition_data=data)]
        )

        (answer,) = (await rig.peer().request(requested, 9)).responses

        codes = [(each.index, each.error_code) for each in answer.partition_responses]
        assert codes == [(0, 0), (1, 87), (9, 3), (2, 0)]
