"""read_committed: Fetch and ListOffsets with open and with aborted transactions.

No gateway can write Kafka transactions yet, so the tests append them as a coordinator would.
"""

from __future__ import annotations

import pytest

from tests.gateway.kafka.fetch.test_fetch import bases, fetch, partitions
from tests.gateway.kafka.offsets.test_list_offsets import build_request, found, request_each
from tests.gateway.kafka.rig import Rig, settle, versions
from tests.gateway.loop import on_loop
from tests.log.ledger import data, marker
from trilogue.broker.topics.topic import Topic
from trilogue.entry.control import Outcome
from trilogue.entry.entry import Record
from trilogue.entry.kafka.record_batch import build_batch
from trilogue.entry.walk import read_header

A, B = 7, 8
UNCOMMITTED, COMMITTED = 0, 1


async def write(rig: Rig, *entries: bytes, topic: Topic | None = None) -> None:
    """Append to the first partition of a topic, or of the first topic, durably."""
    plog = (topic or next(iter(rig.broker.cluster))).partitions[0].log
    for entry in entries:
        plog.append(memoryview(entry), read_header(entry))
    rig.log.journal.on_commit(lambda _: None)
    await settle()


async def read(rig: Rig, offset: int = 0, *, version: int = 12, level: int = COMMITTED, **how):
    topic_id = next(iter(rig.broker.cluster)).topic_id
    request = fetch("t", offset, topic_id=topic_id, isolation_level=level, **how)
    (answer,) = partitions(await rig.peer().request(request, version))
    assert answer.error_code == 0
    return answer


def passed(answer) -> list[tuple[int, int]]:
    return [(row.producer_id, row.first_offset) for row in answer.aborted_transactions]


@pytest.mark.parametrize("version", versions(1)[4:])  # no isolation level before
@on_loop
async def test_every_version_stops_at_the_last_stable_offset_and_names_the_aborted(version):
    async with Rig() as rig:
        rig.topic("t")
        await write(rig, data(A), marker(A, Outcome.ABORT), data(None), data(B), data(None))

        answer = await read(rig, version=version)

        assert (answer.high_watermark, answer.last_stable_offset) == (5, 3)
        assert bases(answer.records) == [0, 1, 2]
        assert passed(answer) == [(A, 0)]


@on_loop
async def test_readers_of_everything_see_open_data_and_no_list():
    async with Rig() as rig:
        rig.topic("t")
        await write(rig, data(A), marker(A, Outcome.ABORT), data(B))

        answer = await read(rig, level=UNCOMMITTED)

        assert (answer.high_watermark, answer.last_stable_offset) == (3, 2)
        assert bases(answer.records) == [0, 1, 2]
        assert answer.aborted_transactions is None


@on_loop
async def test_no_caller_waits_in_vain_for_the_end_of_a_transaction():
    async with Rig() as rig:
        rig.topic("t")
        await write(rig, data(A))
        begin = rig.loop.time()
        assert bases((await read(rig, max_wait_ms=500)).records) == []
        assert rig.loop.time() - begin == pytest.approx(0.5, abs=0.01)

        peer = rig.peer()
        peer.send(fetch("t", 0, isolation_level=COMMITTED, max_wait_ms=60_000), 11)
        await settle()
        assert peer.answered == 0
        await write(rig, marker(A, Outcome.COMMIT))
        await peer.wait()

        (answer,) = partitions(peer.answer())
        assert (bases(answer.records), passed(answer)) == ([0, 1], [])


@pytest.mark.parametrize("cold", [False, True])
@on_loop
async def test_only_what_matters_to_the_batches_in_the_answer_is_listed(cold):
    async with Rig() as rig:
        rig.topic("t")
        abort_a, abort_b = marker(A, Outcome.ABORT), marker(B, Outcome.ABORT)
        await write(rig, data(None), data(A), abort_a, data(B), abort_b, data(None))
        if cold:
            await rig.flush()

        listed = {
            (offset, most): passed(await read(rig, offset, partition_max_bytes=most))
            for offset, most in ((0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (0, 1 << 20))
        }

        assert listed == {
            (0, 1): [],
            (1, 1): [(A, 1)],
            (2, 1): [(A, 1)],  # its marker: the client removes it from its list there
            (3, 1): [(B, 3)],
            (4, 1): [(B, 3)],
            (5, 1): [],
            (0, 1 << 20): [(A, 1), (B, 3)],
        }


@on_loop
async def test_a_marker_may_lie_in_a_later_segment_or_in_memory():
    async with Rig() as rig:
        rig.topic("t")
        await write(rig, data(A), data(None))
        await rig.flush()
        await write(rig, data(None))
        await rig.flush()
        assert bases((await read(rig)).records) == []

        await write(rig, marker(A, Outcome.ABORT), data(None))
        in_memory = await read(rig)
        await rig.flush()
        in_segments = await read(rig)

        for answer in (in_memory, in_segments):
            assert bases(answer.records) == [0, 1]  # what is in the first segment
            assert passed(answer) == [(A, 0)]
        assert bases((await read(rig, 2)).records) == [2]
        assert passed(await read(rig, 2)) == [(A, 0)]


@on_loop
async def test_a_cold_reader_stops_at_the_last_stable_offset_too():
    async with Rig() as rig:
        rig.topic("t")
        await write(rig, data(None), data(None), data(A), data(None))
        await rig.flush()

        assert bases((await read(rig)).records) == [0, 1]
        assert bases((await read(rig, 2)).records) == []
        assert bases((await read(rig, level=UNCOMMITTED)).records) == [0, 1, 2, 3]


@on_loop
async def test_a_damaged_index_is_an_error_of_its_partition():
    async with Rig() as rig:
        rig.topic("t")
        await write(rig, data(A), marker(A, Outcome.ABORT))
        await rig.flush()
        (path,) = [each for each in rig.segments() if each.suffix == ".segment"]
        (segment,) = rig.log.segments.values()
        rig.fs.flip(path, segment.footer_position + 60, 1)

        request = fetch("t", 0, isolation_level=COMMITTED)
        (answer,) = partitions(await rig.peer().request(request, 11))

        assert answer.error_code == 2  # CORRUPT_MESSAGE
        assert bytes(answer.records or b"") == b""


# ---- ListOffsets


@on_loop
async def test_to_committed_readers_the_log_ends_at_the_last_stable_offset():
    async with Rig() as rig:
        rig.topic("t")
        times = [
            build_batch([Record(0, ms, None, b"x")], **how)
            for ms, how in (
                (1_000, {}),
                (
                    2_000,
                    {
                        "transactional": True,
                        "producer_id": A,
                        "producer_epoch": 0,
                        "base_sequence": 0,
                    },
                ),
                (3_000, {}),
            )
        ]
        await write(rig, *times)
        requested = build_request("t", -1, -2, 500, 2_000, 2_500, -3)

        everything = await request_each(rig.peer(), requested, 8)
        requested.isolation_level = COMMITTED
        committed = await request_each(rig.peer(), requested, 8)

        assert [each[1] for each in found(everything)] == [3, 0, 0, 1, 2, 2]
        assert [each[1] for each in found(committed)] == [1, 0, 0, -1, -1, -1]
