"""Everything that consumers may do, in any order, over a real log: nothing is lost or sent twice.

Consumers of one subscription of each type subscribe, send permits, ack entries and parts of them,
redeliver, seek, close and are cut, while messages are written, deleted and flushed. After each:

    shared types    no entry is with two consumers
    all types       what was acked is not sent again, until a seek
    not SHARED      what is sent for the first time is in order (of its key)

In the end the consumers that are connected take and ack everything, and no backlog is left.
"""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from tests.gateway.kafka.rig import batch as kafka_batch
from tests.gateway.loop import on_loop
from tests.gateway.pulsar.readers import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED, ack, ids
from tests.gateway.pulsar.rig import Answer, Peer, Rig, section, send_frame, settle
from tests.sharing import seeds
from trilogue.gateway.pulsar.settings import PulsarSettings
from trilogue.wire.pulsar.pulsar_pb2 import MessageMetadata, SingleMessageMetadata

LIMITS: list[dict[str, str]] = [
    {},
    {"pulsar_maxUnackedMessagesOnConsumer": "5"},
    {
        "pulsar_maxUnackedMessagesOnConsumer": "20",
        "pulsar_maxUnackedMessagesOnSubscription": "30",
    },
]
STEPS = (
    ["write"] * 6 + ["subscribe"] * 3 + ["request"] * 6 + ["ack"] * 5 + ["ack_part"] * 2
    + ["ack_until"] * 2 + ["give_back"] * 4 + ["close"] * 2
    + ["cut", "seek", "delete", "get_stuck", "get_on", "ack_nonsense", "check"]
)  # fmt: skip


class One:
    """A consumer, and which entries it has: their base offsets, and how many messages."""

    def __init__(self, peer: Peer, consumer_id: int, group: Group) -> None:
        self.peer = peer
        self.consumer_id = consumer_id
        self.group = group
        self.has: dict[int, int] = {}


class Group:
    """A subscription."""

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.name = f"s{kind}"
        self.ones: list[One] = []
        self.forget()

    def forget(self) -> None:
        """It was put somewhere else."""
        self.acked: set[int] = set()
        self.seen: set[int] = set()
        self.newest: dict[str, int] = {}
        for one in self.ones:
            one.has.clear()

    def take(self, one: One, base: int, metadata: MessageMetadata) -> None:
        """A message came to one of it."""
        assert base not in self.acked, "what was acked came again"
        if self.kind in {SHARED, KEY_SHARED}:
            assert not any(base in each.has for each in self.ones), "two have the same entry"
        keyed = self.kind == KEY_SHARED
        ordered = metadata.HasField("partition_key") if keyed else self.kind != SHARED
        if base not in self.seen and ordered:
            key = metadata.partition_key if keyed else ""
            assert base > self.newest.get(key, -1), "something was passed over"
            self.newest[key] = base
        self.seen.add(base)
        one.has[base] = metadata.num_messages_in_batch


class Storm:
    """One run."""

    def __init__(self, rig: Rig, seed: int) -> None:
        self.rig = rig
        self.random = random.Random(seed)
        self.partition = rig.topic("t", **LIMITS[seed % 3]).partitions[0]
        self.groups = [Group(kind) for kind in (EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED)]
        self.peers: list[Peer] = []
        self.sent = self.consumers = 0

    async def begin(self) -> None:
        self.writer = await self.rig.connected()
        await self.writer.producer("t")

    async def step(self) -> None:
        name = self.random.choice(STEPS)
        group = self.random.choice(self.groups)
        if name in {"write", "subscribe", "check"}:
            await getattr(self, name)(group)
        elif group.ones:
            one = self.random.choice(group.ones)
            if not one.peer.transport.stuck or name in {"get_on", "cut"}:
                await getattr(self, name)(one)
        if self.random.random() < 0.7:
            await self.check(group)

    # ---- what comes

    async def check(self, _group: Group | None = None) -> None:
        for _ in range(6):
            await settle()
            for peer in self.peers:
                while peer.answered:
                    self._take(peer, peer.next())

    def _take(self, peer: Peer, answer: Answer) -> None:
        assert answer.field != "error", answer
        if answer.field not in {"message", "close_consumer"}:
            return
        found = [one for group in self.groups for one in group.ones if one.peer is peer]
        for one in found:
            if one.consumer_id != answer.command.consumer_id:
                continue
            if answer.field == "close_consumer":
                one.group.ones.remove(one)
                continue
            (size,) = struct.unpack_from(">I", answer.section, 6)
            metadata = MessageMetadata.FromString(answer.section[10 : 10 + size])
            one.group.take(one, answer.command.message_id.entryId, metadata)

    # ---- what is done

    async def write(self, _group: Group) -> None:
        key = f"k{self.random.randrange(6)}"
        count = self.random.randrange(9)
        if count == 0:
            records = memoryview(kafka_batch(*["v"] * self.random.randrange(1, 5)))
            self.partition.append(records, now_ms=self.rig.now_ms)
            return
        self.sent += 1
        if count < 5:
            value = b"x" * self.random.choice([1, 5_000])
            self.writer.send(1, self.sent, value, metadata_partition_key=key)
            return
        head = SingleMessageMetadata(payload_size=2).SerializeToString()
        body = (struct.pack(">I", len(head)) + head + b"ab") * count
        data = section(body, num_messages_in_batch=count, partition_key=key)
        self.writer.give(send_frame(1, self.sent, body=data, num_messages=count))

    async def subscribe(self, group: Group) -> None:
        if group.kind == EXCLUSIVE and group.ones:
            return
        peer = self.random.choice([*self.peers, None])
        if peer is None or peer.transport.stuck:
            peer = await self.rig.connected()
            self.peers.append(peer)
        self.consumers += 1
        group.ones.append(One(peer, self.consumers, group))
        self._send_command(
            group.ones[-1],
            "subscribe",
            topic="t",
            subscription=group.name,
            subType=group.kind,
            initialPosition=1,
            consumer_name=f"n{self.random.randrange(100)}",
        )
        await self.check()

    async def request(self, one: One) -> None:
        count = self.random.choice([1, 2, 5, 50])
        one.peer.send_command("flow", consumer_id=one.consumer_id, messagePermits=count)

    async def ack(self, one: One) -> None:
        self._ack(one, self._some(one))

    def _ack(self, one: One, bases: list[int], **more: Any) -> None:
        ack(one.peer, ids(self.rig, *bases), consumer_id=one.consumer_id, **more)
        one.group.acked.update(bases)
        for each in one.group.ones:
            for base in bases:
                each.has.pop(base, None)

    async def ack_part(self, one: One) -> None:
        for base, count in list(one.has.items())[:1]:
            if count > 1:
                kept = self.random.randrange(1, 1 << count)
                named = ids(self.rig, base, ack_set=[kept], batch_size=count)
                ack(one.peer, named, consumer_id=one.consumer_id)

    async def ack_until(self, one: One) -> None:
        if one.group.kind in {EXCLUSIVE, FAILOVER} and one.has:
            last = self.random.choice(list(one.has))
            ack(one.peer, ids(self.rig, last), consumer_id=one.consumer_id, ack_type=1)
            one.group.acked |= {base for base in one.group.seen if base <= last}
            for each in one.group.ones:
                each.has = {base: count for base, count in each.has.items() if base > last}

    async def ack_nonsense(self, one: One) -> None:
        end = self.partition.log.end_offset
        entry = self.random.choice([-1, 2**63 - 1, 2**62, -(2**63), end, end + 5])
        ack(one.peer, ids(self.rig, entry), consumer_id=one.consumer_id, request_id=1)

    async def give_back(self, one: One) -> None:
        some = self._some(one) if one.group.kind in {SHARED, KEY_SHARED} else []
        one.peer.send_command(
            "redeliverUnacknowledgedMessages",
            consumer_id=one.consumer_id,
            message_ids=ids(self.rig, *some),
        )
        for base in some or list(one.has):
            del one.has[base]

    async def close(self, one: One) -> None:
        self._send_command(one, "close_consumer")
        one.group.ones.remove(one)

    async def cut(self, one: One) -> None:
        one.peer.transport.close()
        self.peers.remove(one.peer)
        for group in self.groups:
            group.ones = [each for each in group.ones if each.peer is not one.peer]
        await settle()

    async def seek(self, one: One) -> None:
        self._send_command(one, "seek", message_id=ids(self.rig, self._anywhere())[0])
        await self.check()
        one.group.forget()

    async def delete(self, _one: One) -> None:
        if self.random.random() < 0.5:
            self.partition.log.retain_from(self._anywhere())
        if self.random.random() < 0.5:
            self.rig.broker.subscriptions.on_starts_moved([self.partition.partition_id])

    async def get_stuck(self, one: One) -> None:
        one.peer.transport.stuck = True

    async def get_on(self, one: One) -> None:
        one.peer.transport.unstick()

    def _send_command(self, one: One, field: str, **fields: Any) -> None:
        number = one.peer.number()
        one.peer.send_command(field, request_id=number, consumer_id=one.consumer_id, **fields)

    def _some(self, one: One) -> list[int]:
        return self.random.sample(list(one.has), self.random.randrange(len(one.has) + 1))

    def _anywhere(self) -> int:
        plog = self.partition.log
        return self.random.randrange(plog.start_offset, plog.high_watermark + 1)

    # ---- the end

    async def end(self) -> None:
        for peer in self.peers:
            peer.transport.unstick()
        everybody = [one for group in self.groups for one in group.ones]
        for one in everybody:
            one.peer.send_command("flow", consumer_id=one.consumer_id, messagePermits=100_000)
        for _ in range(60):
            await self.check()
            for one in everybody:
                if one.has:
                    self._ack(one, list(one.has))
        for group in self.groups:
            if group.ones:
                self._check_empty(group)

    def _check_empty(self, group: Group) -> None:
        partition_id, log = self.partition.partition_id, self.partition.log
        cursor = self.rig.broker.subscriptions.find_cursor(partition_id, group.name)
        dispatcher = self.rig.gateway.subscriptions.find_dispatcher(partition_id, group.name)
        assert cursor is not None
        assert dispatcher is not None
        assert cursor.mark == log.high_watermark, cursor
        assert dispatcher.subscription.unacked == 0
        shared = dispatcher.subscription._shared_dispatch
        if shared is not None:
            left = [shared._again, shared._owners, shared._holders, shared._keys_again]
            assert not any([*left, shared._redelivered, shared._delayed])


@on_loop
async def run(seed: int) -> None:
    async with Rig(pulsar=PulsarSettings(keep_alive_s=100_000)) as rig:
        storm = Storm(rig, seed)
        await storm.begin()
        for _ in range(150):
            await storm.step()
        await storm.end()


@pytest.mark.parametrize("seed", seeds(12, quick=4))
def test_nothing_is_lost_and_nothing_is_with_two(seed):
    run(seed)


@pytest.mark.long
@pytest.mark.parametrize("first", range(100, 1_100, 100))
def test_nothing_is_lost_and_nothing_is_with_two_in_a_thousand_storms(first):
    for seed in range(first, first + 100):
        run(seed)
