"""TubeMQ's messages on the real log, over a disk that loses what it may.

They are sent between those of a Pulsar producer, files are sealed and flushed, and again and again
the process or the power goes. What was acknowledged is there afterwards, once, in order, with the
same bytes under the same id.
"""

from __future__ import annotations

import pytest

from tests.broker.node_room import Node, Steps
from tests.broker.pulsar import append, send
from trilogue.entry.entry import Format
from trilogue.entry.kafka.record_batch import check_crc
from trilogue.entry.tubemq.tubemq_blob import build_entry, join_data, message_id, pick, verify_entry
from trilogue.entry.walk import read_header
from trilogue.log.partition_log import SegmentSlice


class World(Steps):
    """One node, one partition, what was sent to it and what was acknowledged."""

    def __init__(self, seed: int) -> None:
        super().__init__(Node(seed))
        self.node.create("orders", 1)
        self.sent = 0
        self.acknowledged: dict[int, bytes] = {}  # offset -> data, acknowledged

    def send(self) -> None:
        self.sent += 1
        data, flag = join_data(f"$msgType$=t{self.sent % 3},n={self.sent}", b"body %d" % self.sent)
        entry, header = build_entry(
            data, flag, -1, 0, f"t{self.sent % 3}", "202611211200", self.node.loop.now_ms()
        )
        partition = self.node.partition(0)
        appended = partition.append_entry(
            entry, header, now_ms=self.node.loop.now_ms(), size=len(data), encrypted=False
        )

        def durable(error: BaseException | None) -> None:
            assert error is None
            self.acknowledged[appended.base_offset] = data

        self.node.log.journal.on_commit(durable)

    def send_other(self) -> None:
        self.sent += 1
        append(self.node.partition(0), send("p", self.sent, 2), self.node.loop.now_ms())

    def crash(self) -> None:
        self.node.crash()
        self.check()

    def check(self) -> None:
        log = self.node.partition(0).log
        found: dict[int, bytes] = {}
        offset = log.start_offset
        while offset < log.high_watermark:
            part = log.read(offset, 1)
            data = part.run() if isinstance(part, SegmentSlice) else b"".join(part.slices)
            header = read_header(data)
            assert header.base_offset == offset
            check_crc(data)
            if header.format is Format.TUBEMQ:
                (message,) = pick(data, log.partition_id, offset, None, 1 << 20, 10).messages
                assert message.message_id == message_id(log.partition_id, offset)
                assert verify_entry(data, header).data == message.data
                found[offset] = bytes(message.data)
            offset += header.span
        assert self.acknowledged.items() <= found.items()
        assert len(set(found.values())) == len(found)


CHANCES = {
    World.send: 50,
    World.send_other: 10,
    World.turn: 20,
    World.work: 3,
    World.seal: 2,
    World.flush: 3,
    World.crash: 2,
}


@pytest.mark.parametrize("seed", range(10))
def test_acknowledged_tubemq_messages_survive_byte_for_byte(seed: int):
    world = World(seed)

    for step in world.node.random.choices(list(CHANCES), list(CHANCES.values()), k=300):
        step(world)

    world.node.loop.run()
    world.check()
    assert len(world.acknowledged) > 100
