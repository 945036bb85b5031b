"""SUBSCRIBE by raw frames: who may take part, and where a subscription begins."""

from __future__ import annotations

import struct

import pytest

from tests.gateway.loop import on_loop
from tests.gateway.pulsar.readers import (
    ABSENT,
    EARLIEST,
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    LATEST,
    SHARED,
    ack,
    fill,
    fill_batch,
    ids,
    messages,
    offsets,
    received,
    subscribe,
)
from tests.gateway.pulsar.rig import Rig, settle
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.cursors.position import Cursor
from trilogue.gateway.pulsar.settings import PulsarSettings
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.pulsar_pb2 import KeySharedMode, MessageMetadata

KINDS = {"Exclusive": EXCLUSIVE, "Shared": SHARED, "Failover": FAILOVER, "Key_Shared": KEY_SHARED}
STICKY = KeySharedMode.STICKY


def message_key(body: bytes) -> str:
    (size,) = struct.unpack_from(">I", body, 6)
    return MessageMetadata.FromString(body[10 : 10 + size]).partition_key


def cursor(rig: Rig, topic: str = "t", name: str = "s") -> Cursor | None:
    partition = rig.broker.cluster.topic(rig.name(topic)).partitions[0]
    return rig.broker.subscriptions.find_cursor(partition.partition_id, name)


# ---- SUBSCRIBE


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@on_loop
async def test_every_type_gets_all_messages_in_order(kind):
    """Protocol, Subscribe: subType Exclusive, Shared, Failover, Key_Shared."""
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, *(b"%d" % number for number in range(5)))
        peer = await rig.connected()

        await subscribe(peer, kind=kind)
        found = [each for each in await received(peer) if each.field == "message"]

        assert [each.command.message_id.entryId for each in found] == [0, 1, 2, 3, 4]
        assert {1} == {each.command.consumer_id for each in found}
        assert {-1} == {each.command.message_id.partition for each in found}


@on_loop
async def test_message_ids_contain_the_partition():
    async with Rig() as rig:
        rig.topic("t", 3)
        await fill(rig, b"a", topic="t-partition-2")
        peer = await rig.connected()

        await subscribe(peer, "t-partition-2")

        (found,) = await messages(peer)
        assert found.command.message_id.partition == 2


@on_loop
async def test_a_topic_is_made_by_subscribing_unless_the_client_forbids_it():
    """docs/reference/wire/pulsar.md: force_topic_creation (field 15)."""
    async with Rig() as rig:
        peer = await rig.connected()

        refused = await subscribe(peer, "new", force_topic_creation=False, answer="error")
        assert refused.error == ServerError.TopicNotFound
        await subscribe(peer, "new")

        assert rig.broker.cluster.find_topic(rig.name("new")) is not None


@on_loop
async def test_subscribe_without_permission_is_denied():
    async with Rig() as rig:
        rig.topic("t")
        rig.rules.deny(Operation.READ, ResourceKind.TOPIC, "public/default/t")
        peer = await rig.connected()

        refused = await subscribe(peer, answer="error")

        assert refused.error == ServerError.AuthorizationError
        assert not peer.connection.consumers


@on_loop
async def test_exclusive_subscription_refuses_a_second_consumer():
    async with Rig() as rig:
        rig.topic("t")
        first, second = await rig.connected(), await rig.connected()
        await subscribe(first)

        refused = await subscribe(second, answer="error")
        assert refused.error == ServerError.ConsumerBusy
        first.transport.close()
        await subscribe(second)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("other", KINDS.values(), ids=KINDS)
@on_loop
async def test_subscription_type_cannot_change_while_a_consumer_is_connected(kind, other):
    if kind == other:
        return
    async with Rig() as rig:
        rig.topic("t")
        first, second = await rig.connected(), await rig.connected()
        await subscribe(first, kind=kind)

        refused = await subscribe(second, kind=other, answer="error")

        assert refused.error == ServerError.ConsumerBusy


@on_loop
async def test_the_same_consumer_id_again_is_the_same_success():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        await subscribe(peer)

        await subscribe(peer, permits=0)

        assert len(peer.connection.consumers) == 1


@on_loop
async def test_the_same_consumer_id_while_it_is_being_made_is_not_ready():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        fields = {"topic": "t", "subscription": "s", "subType": 0, "consumer_id": 1}

        peer.send_command("subscribe", request_id=71, **fields)
        peer.send_command("subscribe", request_id=72, **fields)
        refused = await peer.answer("error")
        done = await peer.answer("success")

        assert (72, ServerError.ServiceNotReady) == (refused.request_id, refused.error)
        assert done.request_id == 71


@on_loop
async def test_a_close_followed_at_once_by_a_subscribe_is_served_in_order():
    """Protocol, CloseConsumer: "the client doesn't need to wait for a response"."""
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, b"a")
        peer = await rig.connected()
        fields = {"topic": "t", "subscription": "s", "subType": 0, "initialPosition": EARLIEST}

        peer.send_command("subscribe", request_id=71, consumer_id=1, **fields)
        peer.send_command("close_consumer", request_id=72, consumer_id=1)
        peer.send_command("subscribe", request_id=73, consumer_id=1, **fields)
        answers = {(await peer.answer("success")).request_id for _ in range(2)}

        assert {72, 73} == answers
        peer.send_command("flow", consumer_id=1, messagePermits=10)
        assert await offsets(peer) == [0]


@pytest.mark.parametrize(("position", "expected"), [(EARLIEST, [0, 1, 2]), (LATEST, [2])])
@on_loop
async def test_new_subscription_starts_at_its_initial_position(position, expected):
    """docs/reference/wire/pulsar.md: initialPosition (field 13)."""
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, b"0", b"1")
        peer = await rig.connected()
        await subscribe(peer, initialPosition=position)
        await fill(rig, b"2")

        assert expected == await offsets(peer)


@on_loop
async def test_a_durable_subscription_goes_on_where_it_was():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, b"0", b"1", b"2")
        first = await rig.connected()
        await subscribe(first)
        await settle()
        ack(first, ids(rig, 0))
        first.transport.close()
        peer = await rig.connected()

        await subscribe(peer, initialPosition=LATEST)

        assert await offsets(peer) == [1, 2]


@on_loop
async def test_properties_of_a_subscription_are_kept_with_it():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()

        await subscribe(peer, subscription_properties=[{"key": "a", "value": "b"}])

        assert cursor(rig).properties == {"a": "b"}


@on_loop
async def test_a_subscription_that_is_not_durable_leaves_nothing():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, b"0", b"1")
        peer = await rig.connected()
        await subscribe(peer, durable=False)
        assert await offsets(peer) == [0, 1]

        peer.transport.close()
        await settle()

        partition_id = rig.broker.cluster.topic(rig.name("t")).partitions[0].partition_id
        assert cursor(rig) is None
        assert not rig.gateway.subscriptions.of(partition_id)


@on_loop
async def test_durable_and_not_durable_do_not_share_a_name():
    async with Rig() as rig:
        rig.topic("t")
        first, second = await rig.connected(), await rig.connected()
        await subscribe(first, name="kept", kind=SHARED)
        await subscribe(first, name="passing", kind=SHARED, consumer_id=2, durable=False)

        for name, durable in (("kept", False), ("passing", True)):
            refused = await subscribe(
                second, name=name, kind=SHARED, durable=durable, answer="error"
            )
            assert refused.error == ServerError.NotAllowedError


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ((3, -1), [3, 4, 5, 9]),
        ((5, 2), [5, 9]),
        ((7, -1), [5, 9]),  # inside of the batch of 4 at 5
        ((-1, -1), [0, 1, 2, 3, 4, 5, 9]),
        ((9, -1), [9]),
        ((500, -1), []),
    ],
)
@on_loop
async def test_a_reader_begins_with_the_entry_that_it_names(start, expected):
    """As real brokers do: what of it is wanted is known to the client, which passes over it."""
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, b"0", b"1", b"2", b"3", b"4")
        await fill_batch(rig, b"5", b"6", b"7", b"8")
        await fill(rig, b"9")
        peer = await rig.connected()
        entry, index = start
        (message_id,) = ids(rig, entry, batch_index=index)

        await subscribe(peer, durable=False, start_message_id=message_id)

        assert expected == await offsets(peer)


@pytest.mark.parametrize(
    ("ledger", "expected"), [(ABSENT, [0, 1]), ((1 << 63) - 1, []), (0, [0, 1])]
)
@on_loop
async def test_ids_of_no_partition_are_before_all_or_behind_all(ledger, expected):
    """Earliest is (-1, -1), latest (2^63 - 1, 2^63 - 1); an older ledger's are before all."""
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, b"0", b"1")
        peer = await rig.connected()

        await subscribe(
            peer, durable=False, start_message_id={"ledgerId": ledger, "entryId": ledger}
        )

        assert expected == await offsets(peer)


@on_loop
async def test_a_reader_may_begin_some_time_ago():
    """docs/reference/wire/pulsar.md: start_message_rollback_duration_sec (field 16)."""
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, b"0", publish_time=rig.now_ms - 60_000)
        await fill(rig, b"1", b"2", publish_time=rig.now_ms - 5_000)
        peer = await rig.connected()

        await subscribe(peer, durable=False, start_message_rollback_duration_sec=10)

        assert await offsets(peer) == [1, 2]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@on_loop
async def test_compacted_topics_are_read_by_one_consumer_at_a_time(kind):
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        single = kind in {EXCLUSIVE, FAILOVER}

        answer = await subscribe(
            peer, kind=kind, read_compacted=True, answer="success" if single else "error"
        )

        if not single:
            assert answer.error == ServerError.NotAllowedError


@on_loop
async def test_a_subscription_has_a_name():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()

        refused = await subscribe(peer, name="", answer="error")

        assert refused.error == ServerError.NotAllowedError


@on_loop
async def test_size_of_consumer_metadata_is_limited():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()

        for fields in (
            {"consumer_name": "x" * 2_000},
            {"metadata": [{"key": "k", "value": "v" * 20_000}]},
        ):
            refused = await subscribe(peer, answer="error", **fields)
            assert refused.error == ServerError.NotAllowedError
        assert not peer.connection.consumers


# ---- key-shared and failover


@on_loop
async def test_sticky_ranges_that_overlap_are_refused():
    async with Rig() as rig:
        rig.topic("t")
        first, second = await rig.connected(), await rig.connected()

        def ranges(*pairs: tuple[int, int]) -> dict[str, object]:
            found = [{"start": start, "end": end} for start, end in pairs]
            return {"keySharedMeta": {"keySharedMode": STICKY, "hashRanges": found}}

        await subscribe(first, kind=KEY_SHARED, **ranges((0, 99)))
        for wrong in (((50, 150),), ((5, 1),), (), ((200, 70_000),)):
            refused = await subscribe(second, kind=KEY_SHARED, answer="error", **ranges(*wrong))
            assert refused.error == ServerError.ConsumerAssignError
        await subscribe(second, kind=KEY_SHARED, **ranges((100, 65_535)))


@on_loop
async def test_sticky_ranges_get_the_keys_that_clients_expect():
    """docs/reference/wire/pulsar.md, keys: slot of "a" 27058, of "key-1" 5536."""
    async with Rig() as rig:
        rig.topic("t")
        first, second = await rig.connected(), await rig.connected()
        for peer, slot in ((first, 27_058), (second, 5_536)):
            meta = {"keySharedMode": STICKY, "hashRanges": [{"start": slot, "end": slot}]}
            await subscribe(peer, kind=KEY_SHARED, keySharedMeta=meta)
        await fill(rig, b"0", partition_key="a")
        await fill(rig, b"1", partition_key="key-1")
        await fill(rig, b"2", partition_key="nobody's")
        await fill(rig, b"3", partition_key="b", ordering_key=b"a")
        await fill(rig, b"4", partition_key="YQ==", partition_key_b64_encoded=True)

        assert await offsets(first) == [0, 3, 4]
        assert await offsets(second) == [1]


@on_loop
async def test_failover_consumers_receive_active_consumer_changes():
    """Protocol, Subscribe: consumers are sorted by name, and the first is the master."""
    async with Rig() as rig:
        rig.topic("t")
        b, a, old = await rig.connected(), await rig.connected(), await rig.connected(11)

        await subscribe(b, kind=FAILOVER, consumer_name="b")
        assert (await b.answer("active_consumer_change")).is_active
        await subscribe(a, kind=FAILOVER, consumer_name="a")
        assert (await a.answer("active_consumer_change")).is_active
        assert not (await b.answer("active_consumer_change")).is_active
        await subscribe(old, kind=FAILOVER, consumer_name="0", priority_level=1)
        assert not await received(old), "it is too old to be told"
        a.transport.close()
        assert (await b.answer("active_consumer_change")).is_active


@on_loop
async def test_a_takeover_delivers_what_was_not_acked_in_order():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, *(b"%d" % number for number in range(6)))
        a, b = await rig.connected(), await rig.connected()
        await subscribe(a, kind=FAILOVER, consumer_name="a")
        await subscribe(b, kind=FAILOVER, consumer_name="b")
        await settle()
        ack(a, ids(rig, 2), ack_type=1)
        ack(a, ids(rig, 4))
        await received(b)

        a.transport.close()
        found = await received(b)

        assert found[0].field == "active_consumer_change"
        assert [each.command.message_id.entryId for each in found[1:]] == [3, 5]


@pytest.mark.parametrize("ring", [True, False])
@on_loop
async def test_keys_are_shared_out_by_a_ring_or_by_halves(ring):
    async with Rig(pulsar=PulsarSettings(key_shared_ring=ring)) as rig:
        rig.topic("t")
        first, second = await rig.connected(), await rig.connected()
        for name, peer in (("a", first), ("b", second)):
            await subscribe(peer, kind=KEY_SHARED, consumer_name=name)
        for number in range(40):
            await fill(rig, b"x", partition_key=f"k{number % 20}")

        found = [
            {message_key(each.section) for each in await messages(peer)} for peer in (first, second)
        ]

        assert found[0]
        assert found[1]
        assert not found[0] & found[1], "a key has one consumer"
