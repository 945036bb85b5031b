"""Time to live and backlog quotas, on the real log: whose marks move, how far, and who is sent off.

docs/reference/retention.md has the table.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from tests.broker.fakes import batch
from tests.broker.node_room import Node
from tests.broker.pulsar import append, send
from tests.gateway.loop import on_loop
from tests.waiting import pass_time
from trilogue.broker.cursors.position import Cursor
from trilogue.broker.errors import BacklogExceeded, BacklogHold, BrokerError
from trilogue.broker.producers.access_modes import Writer
from trilogue.broker.subscriptions.backlog import backlog_size, check_backlog
from trilogue.broker.topics.policies import BacklogQuota, BacklogQuotaPolicy
from trilogue.entry.tubemq.tubemq_blob import COMPUTE
from trilogue.entry.tubemq.tubemq_blob import build_entry as build_tube_entry
from trilogue.node.background.backlog_expiry import BacklogExpiry
from trilogue.node.storage import Storage

EVICTION, HOLD, EXCEPTION = (
    BacklogQuotaPolicy.EVICTION,
    BacklogQuotaPolicy.REQUEST_HOLD,
    BacklogQuotaPolicy.EXCEPTION,
)


class Gone(Writer):
    """A writer that notes that it was sent off."""

    was_sent_off = False

    def on_fenced(self) -> None:
        self.was_sent_off = True


class Room:
    """A topic with one partition and a subscription `s` from its beginning."""

    def __init__(self, **policies: Any) -> None:
        self.node = Node(1)
        self.node.create("orders", 1)
        self.partition = self.node.partition(0)
        self.obey(**policies)
        self.moved: list[tuple[int, str]] = []
        self.node.broker.subscriptions.listeners.append(lambda *moved: self.moved.append(moved))
        self.cursor = self.subscribe("s")

    def obey(self, **policies: Any) -> None:
        self.partition.policies = replace(self.partition.policies, **policies)

    def subscribe(self, name: str, mark: int = 0) -> Cursor:
        promise = self.node.broker.subscriptions.create(self.partition.partition_id, name, mark)
        self.node.loop.run()
        return promise.result()

    def append(self, count: int = 1, value: bytes = b"v") -> None:
        """One entry, taken by the broker at this moment."""
        sent = send(count=count, value=value)
        entry = bytearray(sent.entry)
        entry[61 + 24 : 61 + 32] = self.now_ms.to_bytes(
            8, "big"
        )  # the checksum is not verified again
        append(self.partition, sent._replace(entry=memoryview(entry)), self.now_ms)
        self.node.loop.run()

    def flush(self) -> None:
        self.node.log.seal()
        self.node.loop.run()
        while self.node.cuts:
            self.node.flush()

    @property
    def now_ms(self) -> int:
        return self.node.loop.now_ms()

    def pass_time(self, seconds: float) -> None:
        self.node.loop.pass_time(seconds)

    def move_due_cursors(self) -> None:
        storage = cast("Storage", SimpleNamespace(broker=self.node.broker))
        asyncio.run(BacklogExpiry(storage, self.node.loop.now_ms, every_s=1).move_due_cursors())

    def runs(self, every_s: float) -> Coroutine[Any, Any, None]:
        storage = cast("Storage", SimpleNamespace(broker=self.node.broker))
        return BacklogExpiry(storage, self.node.loop.now_ms, every_s=every_s).run()

    def check(self) -> None:
        check_backlog(self.partition, self.node.broker.subscriptions, self.now_ms)


@pytest.mark.parametrize("flushed", [False, True])
def test_messages_expire_for_subscriptions(flushed: bool):
    """Each when it is its time, and nothing is deleted by that."""
    room = Room(ttl_s=10)
    for _ in range(3):
        room.append(count=2)
        room.pass_time(4)
    other = room.subscribe("t", 2)
    if flushed:
        room.flush()
    room.move_due_cursors()  # 12 s after the first
    assert (room.cursor.mark, other.mark) == (2, 2)
    assert room.moved == [(room.partition.partition_id, "s")]

    room.pass_time(3)
    room.move_due_cursors()
    assert (room.cursor.mark, other.mark) == (4, 4)
    room.pass_time(4)
    room.move_due_cursors()
    assert (room.cursor.mark, other.mark) == (6, 6)
    assert room.partition.log.start_offset == 0
    assert room.node.broker.subscriptions.backlog(other) == 0


def test_without_a_time_to_live_unacked_messages_wait():
    room = Room()
    room.append()
    room.pass_time(1e6)
    room.move_due_cursors()

    assert (room.cursor.mark, room.moved) == (0, [])


def test_kafka_batches_expire_by_append_time_per_block():
    room = Room(ttl_s=10)
    for _ in range(2):
        room.partition.append(batch(timestamp=1), now_ms=room.now_ms)
        room.node.loop.run()
        room.pass_time(6)
    room.move_due_cursors()
    assert room.cursor.mark == 0  # the second is too young, and they are in one block

    room.pass_time(6)
    room.move_due_cursors()
    assert room.cursor.mark == 2


def test_tubemq_messages_expire_one_by_one():
    """Each keeps its time of arrival, whatever its event time."""
    room = Room(ttl_s=10)
    for _ in range(2):
        entry, header = build_tube_entry(b"v", 0, COMPUTE, 0, None, "209901010000", room.now_ms)
        room.partition.append_entry(entry, header, now_ms=room.now_ms, sequence=None)
        room.node.loop.run()
        room.pass_time(6)
    room.move_due_cursors()
    assert room.cursor.mark == 1

    room.pass_time(6)
    room.move_due_cursors()
    assert room.cursor.mark == 2


def test_a_backlog_quota_is_obeyed():
    """By size: until nine tenths are left; who is further is left alone."""
    room = Room(size_quota=BacklogQuota(10_000, -1, EVICTION))
    fast = room.subscribe("fast")
    for _ in range(10):
        room.append(value=bytes(1_000))
    room.node.broker.subscriptions.ack_until(fast, 10)
    room.move_due_cursors()

    size = backlog_size(room.partition, room.cursor.mark)
    assert room.cursor.mark == 2
    assert 8_000 < size <= 9_000
    room.move_due_cursors()
    assert (room.cursor.mark, fast.mark) == (2, 10)
    assert room.moved == [(room.partition.partition_id, "s")]


def test_a_backlog_in_segments_and_in_the_tail_counts():
    room = Room(size_quota=BacklogQuota(10_000, -1, EVICTION))
    for _ in range(6):
        room.append(value=bytes(1_000))
    room.flush()
    assert room.partition.log.tail_bytes == 0
    before = backlog_size(room.partition, 0)
    for _ in range(4):
        room.append(value=bytes(1_000))

    assert 6 * 1_100 < before < backlog_size(room.partition, 0) * 0.61
    room.move_due_cursors()
    assert room.cursor.mark == 2
    room.obey(size_quota=BacklogQuota(0, -1, EVICTION))
    room.move_due_cursors()
    assert room.cursor.mark == 10


def test_a_backlog_that_is_too_old_is_evicted():
    room = Room(age_quota=BacklogQuota(-1, 10, EVICTION))
    room.append()
    room.pass_time(11)
    room.append()
    room.move_due_cursors()

    assert room.cursor.mark == 1


@pytest.mark.parametrize(
    ("overflow", "refusal"), [(HOLD, BacklogHold), (EXCEPTION, BacklogExceeded)]
)
@pytest.mark.parametrize("kind", ["size", "age"])
def test_writers_are_refused_while_too_much_waits(
    overflow: BacklogQuotaPolicy, refusal: type[BrokerError], kind: str
):
    room = Room()
    room.append(value=bytes(1_000))
    room.pass_time(11)
    writer = Gone("p")
    room.node.broker.writers.get_or_create(room.partition.partition_id).admit(writer)
    room.check()
    room.move_due_cursors()
    assert not writer.was_sent_off

    if kind == "size":
        room.obey(size_quota=BacklogQuota(1_000, -1, overflow))
    else:
        room.obey(age_quota=BacklogQuota(-1, 10, overflow))
    with pytest.raises(BacklogExceeded) as caught:
        room.check()
    assert type(caught.value) is refusal
    room.move_due_cursors()
    assert writer.was_sent_off
    assert room.cursor.mark == 0

    room.node.broker.subscriptions.ack_until(room.cursor, 1)
    room.check()


@on_loop
async def test_it_looks_again_and_again():
    room = Room(size_quota=BacklogQuota(1_000, -1, EXCEPTION))
    writers = room.node.broker.writers.get_or_create(room.partition.partition_id)
    looking = asyncio.create_task(room.runs(10))
    writers.admit(early := Gone("early"))
    await pass_time(15)
    assert not early.was_sent_off

    room.append(value=bytes(1_000))
    await pass_time(4)
    assert not early.was_sent_off
    await pass_time(2)
    assert early.was_sent_off
    writers.admit(late := Gone("late"))
    await pass_time(10)
    assert late.was_sent_off
    looking.cancel()


def test_below_its_limits_a_quota_does_nothing():
    room = Room(
        size_quota=BacklogQuota(10_000, -1, EXCEPTION),
        age_quota=BacklogQuota(-1, 10, EXCEPTION),
    )
    room.append(value=bytes(1_000))
    room.pass_time(9)
    room.check()
    room.obey(
        size_quota=BacklogQuota(10_000, -1, EVICTION), age_quota=BacklogQuota(-1, 10, EVICTION)
    )
    room.move_due_cursors()

    assert room.cursor.mark == 0


def test_where_no_client_subscribes_there_is_no_backlog():
    room = Room(
        size_quota=BacklogQuota(0, -1, EXCEPTION), age_quota=BacklogQuota(-1, 1, EXCEPTION), ttl_s=1
    )
    room.node.broker.subscriptions.delete(room.partition.partition_id, "s")
    room.append()
    room.pass_time(100)

    room.check()
    room.move_due_cursors()


def test_marks_follow_a_start_and_its_readers_are_notified():
    room = Room()
    for _ in range(3):
        room.append()
    room.partition.log.retain_from(2)
    room.node.broker.subscriptions.on_starts_moved([room.partition.partition_id, 99])

    assert room.cursor.mark == 2
    assert room.moved == [(room.partition.partition_id, "s")]
