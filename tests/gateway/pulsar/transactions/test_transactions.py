"""Transactions: TxnIDs, sends and acks inside, their end, their bounds, who may use them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.gateway.loop import on_loop
from tests.gateway.pulsar.readers import (
    ABSENT,
    EXCLUSIVE,
    KEY_SHARED,
    SHARED,
    ack,
    fill,
    fill_batch,
    ids,
    mark,
    offsets,
    payload,
    payloads,
    received,
    subscribe,
)
from tests.gateway.pulsar.rig import Peer, Rig, settle
from tests.waiting import wait_on_loop
from trilogue.broker.access.authorizer import Operation, Principal, ResourceKind
from trilogue.broker.cursors.position import Cursor
from trilogue.broker.errors import InvalidRequest, InvalidTransactionState
from trilogue.broker.facts import CursorMove, FactKind
from trilogue.broker.transactions.coordinator import ProducerIdentity
from trilogue.broker.transactions.pulsar_transactions import TxnId
from trilogue.broker.transactions.records import (
    TransactionContent,
    TransactionState,
    decode_saved,
    encode_saved,
)
from trilogue.broker.transactions.transaction import TransactionLimits
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.pulsar_pb2 import CommandAck, TxnAction

ASSIGN = "persistent://pulsar/system/transaction_coordinator_assign"
ADD_PARTITION = {"field": "addPartitionToTxn", "answer": "addPartitionToTxnResponse"}
ADD_SUBSCRIPTION = {"field": "addSubscriptionToTxn", "answer": "addSubscriptionToTxnResponse"}
CUMULATIVE = CommandAck.Cumulative
COMMIT, ABORT = TxnAction.COMMIT, TxnAction.ABORT


async def begin(peer: Peer, ttl_ms: int = 60_000) -> dict[str, int]:
    made = await peer.request("newTxn", "newTxnResponse", txn_ttl_seconds=ttl_ms, tc_id=0)
    assert not made.HasField("error"), made
    return {"txnid_most_bits": made.txnid_most_bits, "txnid_least_bits": made.txnid_least_bits}


async def end(peer: Peer, txn: dict[str, int], action: int = COMMIT) -> int | None:
    """End a transaction; gives the error code."""
    found = await peer.request("endTxn", "endTxnResponse", txn_action=action, **txn)
    return found.error if found.HasField("error") else None


async def ack_in(peer: Peer, txn: dict[str, int], message_ids: Any, **fields: Any) -> int | None:
    """Ack in a transaction; gives the error code."""
    number = peer.number()
    ack(peer, message_ids, request_id=number, **txn, **fields)
    found = await peer.answer("ackResponse")
    assert (found.txnid_most_bits, found.txnid_least_bits) == tuple(txn.values())
    return found.error if found.HasField("error") else None


async def send_in(peer: Peer, txn: dict[str, int], *values: bytes) -> None:
    for number, value in enumerate(values):
        peer.send(1, number, value, **txn)
        await peer.answer("send_receipt")


@asynccontextmanager
async def a_producer(rig: Rig):
    rig.topic("t")
    peer = await rig.connected()
    await peer.producer("t")
    yield peer


@on_loop
async def test_a_client_finds_the_coordinator_without_a_topic():
    async with Rig() as rig:
        peer = await rig.connected()

        found = await peer.request("partitionMetadata", "partitionMetadataResponse", topic=ASSIGN)
        assert found.partitions == 1
        name = f"{ASSIGN}-partition-0"
        found = await peer.request("lookupTopic", "lookupTopicResponse", topic=name)
        assert found.authoritative
        words = {"field": "tcClientConnectRequest", "answer": "tcClientConnectResponse"}
        found = await peer.request(**words, tc_id=0)
        assert not found.HasField("error")
        found = await peer.request(**words, tc_id=1)
        assert found.error == ServerError.TransactionCoordinatorNotFound
        assert not list(rig.broker.cluster)


@on_loop
async def test_a_refused_begin_names_its_coordinator():
    """Java's client has one state for each coordinator, and finds it by this number."""
    async with Rig() as rig:
        peer = await rig.connected()
        found = await peer.request("newTxn", "newTxnResponse", txn_ttl_seconds=60_000, tc_id=5)
        assert found.error == ServerError.TransactionCoordinatorNotFound
        assert found.txnid_most_bits == 5


@on_loop
async def test_consumers_receive_committed_messages_in_offset_order():
    async with Rig() as rig, a_producer(rig) as peer:
        reader = await rig.connected()
        await subscribe(reader)
        first, second = await begin(peer), await begin(peer)
        await send_in(peer, first, b"0", b"1")
        await send_in(peer, second, b"2")
        peer.send(1, 9, b"3")
        await peer.answer("send_receipt")
        assert await payloads(reader) == []

        assert await end(peer, second, ABORT) is None
        assert await payloads(reader) == []
        assert await end(peer, first) is None
        assert await payloads(reader) == [b"0", b"1", b"3"]
        assert mark(rig) == 0


@on_loop
async def test_the_end_may_be_repeated_but_not_changed():
    async with Rig() as rig, a_producer(rig) as peer:
        txn = await begin(peer)
        await send_in(peer, txn, b"0")
        assert await end(peer, txn) is None

        other = await rig.connected()  # who may have missed the answer
        assert await end(other, txn, ABORT) == ServerError.InvalidTxnStatus
        assert await end(other, txn) is None
        for who in (peer, other):
            assert await end(who, txn) == ServerError.TransactionNotFound
        before = rig.broker.cluster.topic(rig.name("t")).partitions[0].log.end_offset
        peer.send(1, 5, b"late", **txn)
        receipt = await peer.answer("send_receipt")
        assert receipt.message_id.entryId == ABSENT
        assert rig.broker.cluster.topic(rig.name("t")).partitions[0].log.end_offset == before
        unknown = {"txnid_most_bits": 0, "txnid_least_bits": 999}
        assert await end(peer, unknown) == ServerError.TransactionNotFound
        elsewhere = {**txn, "txnid_most_bits": 1}
        assert await end(peer, elsewhere) == ServerError.TransactionNotFound


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, KEY_SHARED])
@on_loop
async def test_acks_move_the_cursor_when_their_transaction_commits(kind):
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, b"0", b"1", b"2", b"3")
        peer = await rig.connected()
        await subscribe(peer, kind=kind)
        await received(peer)
        txn = await begin(peer)
        assert await ack_in(peer, txn, ids(rig, 0, 1)) is None
        assert mark(rig) == 0

        assert await end(peer, txn) is None
        assert mark(rig) == 2
        peer.send_command("redeliverUnacknowledgedMessages", consumer_id=1)
        assert await offsets(peer) == [2, 3]
        assert rig.broker.transactions.table.pending_acks.listeners
        partition = rig.broker.cluster.topic(rig.name("t")).partitions[0]
        cursor = rig.broker.subscriptions.find_cursor(partition.partition_id, "s")
        assert rig.broker.transactions.table.pending_acks.claim(cursor) is cursor


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, KEY_SHARED])
@on_loop
async def test_an_abort_gives_messages_back(kind):
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, b"0", b"1", b"2", b"3", partition_key="k")
        peer = await rig.connected()
        await subscribe(peer, kind=kind)
        await received(peer)
        txn = await begin(peer)
        assert await ack_in(peer, txn, ids(rig, 1, 2)) is None
        peer.send_command("redeliverUnacknowledgedMessages", consumer_id=1)
        assert await offsets(peer) == [0, 3]

        assert await end(peer, txn, ABORT) is None
        again = await offsets(peer)
        assert again[:2] == [1, 2]
        assert again[2:] == ([3] if kind == EXCLUSIVE else [])
        ack(peer, ids(rig, 0, 1, 2, 3))
        assert mark(rig) == 4


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED])
@on_loop
async def test_parts_of_a_batch_are_acked_and_given_back(kind):
    """A set bit stands for a message that is not acked."""
    async with Rig() as rig:
        rig.topic("t")
        await fill_batch(rig, b"0", b"1", b"2", b"3")
        peer = await rig.connected()
        await subscribe(peer, kind=kind)
        await received(peer)
        aborted, committed = await begin(peer), await begin(peer)
        assert await ack_in(peer, aborted, ids(rig, 0, ack_set=[0b1110])) is None
        assert await ack_in(peer, committed, ids(rig, 0, ack_set=[0b1101])) is None
        conflict = await ack_in(peer, committed, ids(rig, 0, ack_set=[0b1110]))
        assert conflict == ServerError.TransactionConflict
        peer.send_command("redeliverUnacknowledgedMessages", consumer_id=1)
        (found,) = await received(peer)
        assert list(found.command.ack_set) == [0b1100]

        assert await end(peer, committed) is None
        assert await end(peer, aborted, ABORT) is None

        (found,) = await received(peer)
        assert list(found.command.ack_set) == [0b1101]


@on_loop
async def test_a_cumulative_ack_excludes_other_transactions():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, b"0", b"1", b"2", b"3")
        peer = await rig.connected()
        await subscribe(peer)
        await received(peer)
        first, second = await begin(peer), await begin(peer)
        assert await ack_in(peer, first, ids(rig, 1), ack_type=CUMULATIVE) is None

        conflict = ServerError.TransactionConflict
        assert await ack_in(peer, second, ids(rig, 2), ack_type=CUMULATIVE) == conflict
        assert await ack_in(peer, second, ids(rig, 0)) == conflict
        assert await ack_in(peer, second, ids(rig, 3)) is None
        assert await ack_in(peer, first, ids(rig, 3), ack_type=CUMULATIVE) == conflict
        assert await end(peer, second, ABORT) is None
        assert await offsets(peer) == [3]
        assert await ack_in(peer, first, ids(rig, 2), ack_type=CUMULATIVE) is None
        assert await end(peer, first) is None
        assert mark(rig) == 3
        assert await ack_in(peer, await begin(peer), ids(rig, 0)) == conflict


@on_loop
async def test_messages_acked_in_a_transaction_are_not_redelivered():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, b"0", b"1", b"2")
        peer = await rig.connected()
        await subscribe(peer, kind=SHARED)
        await received(peer)
        txn = await begin(peer)
        assert await ack_in(peer, txn, ids(rig, 0, 1)) is None
        peer.transport.close()
        other = await rig.connected()
        await subscribe(other, kind=SHARED)
        assert await offsets(other) == [2]

        assert await end(other, txn, ABORT) is None
        assert await offsets(other) == [0, 1]


@on_loop
async def test_a_transaction_ends_when_its_time_is_over():
    async with Rig() as rig, a_producer(rig) as peer:
        reader = await rig.connected()
        await subscribe(reader)
        txn = await begin(peer, ttl_ms=1_000)
        await send_in(peer, txn, b"0")
        peer.send(1, 5, b"1")
        await peer.answer("send_receipt")
        rig.now_ms += 999
        assert sum(rig.broker.transactions.abort_expired()) == 0
        rig.now_ms += 1
        assert sum(rig.broker.transactions.abort_expired()) == 1

        assert await payloads(reader) == [b"1"]
        assert await end(peer, txn) == ServerError.InvalidTxnStatus


@on_loop
async def test_a_deleted_topic_does_not_keep_its_transaction_from_ending():
    async with Rig() as rig, a_producer(rig) as peer:
        rig.topic("u")
        await peer.producer("u", producer_id=2)
        reader = await rig.connected()
        await subscribe(reader, "u")
        txn = await begin(peer)
        await send_in(peer, txn, b"0")
        peer.send(2, 0, b"of u", **txn)
        await peer.answer("send_receipt")
        await rig.commit(rig.broker.cluster.plan_delete(rig.name("t")))
        await received(peer)

        assert await end(peer, txn) is None
        assert await payloads(reader) == [b"of u"]


@on_loop
async def test_open_transactions_and_their_time_are_bounded():
    async with Rig() as rig:
        peer = await rig.connected()
        rig.broker.pulsar_transactions._limits = TransactionLimits(open_max=1, ended_max=1)
        txn = await begin(peer)
        words = {"field": "newTxn", "answer": "newTxnResponse"}
        found = await peer.request(**words, txn_ttl_seconds=60_000)
        assert found.error == ServerError.TooManyRequests
        for ttl_ms in (0, 900_001, 1 << 63):
            found = await peer.request(**words, txn_ttl_seconds=ttl_ms)
            assert found.error == ServerError.NotAllowedError

        assert await end(peer, txn) is None
        assert await end(peer, await begin(peer)) is None
        assert await end(peer, txn) == ServerError.TransactionNotFound
        assert len(rig.broker.transactions.table) == 1


@on_loop
async def test_acks_of_a_transaction_are_bounded():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, *[b"x"] * 6)
        rig.broker.transactions.limits = TransactionLimits(ack_ranges_max=2)
        peer = await rig.connected()
        await subscribe(peer, kind=SHARED)
        await received(peer)
        txn = await begin(peer)
        assert await ack_in(peer, txn, ids(rig, 0)) is None
        assert await ack_in(peer, txn, ids(rig, 1)) is None
        assert await ack_in(peer, txn, ids(rig, 3)) is None
        assert await ack_in(peer, txn, ids(rig, 5)) == ServerError.TooManyRequests


@on_loop
async def test_only_the_owner_uses_a_transaction():
    async with Rig() as rig:
        rig.topic("t")
        mallory, alice = await rig.connected(), await rig.connected()
        await alice.producer("t")
        await mallory.producer("t", producer_id=1)
        await subscribe(mallory, kind=SHARED)
        alice.connection.access.set_principal(Principal("User", "alice"))
        mallory.connection.access.set_principal(Principal("User", "mallory"))
        txn = await begin(alice)
        await send_in(alice, txn, b"0")
        name = f"__pulsar_txn_{txn['txnid_least_bits']}"
        rig.rules.deny(Operation.WRITE, ResourceKind.TRANSACTION, name)

        refused = ServerError.TransactionNotFound
        assert await end(mallory, txn, ABORT) == refused
        mallory.send(1, 0, b"1", **txn)
        receipt = await mallory.answer("send_receipt")
        assert receipt.message_id.entryId == ABSENT, "as in a transaction that was forgotten"
        words: dict[str, Any] = {
            "field": "addPartitionToTxn",
            "answer": "addPartitionToTxnResponse",
        }
        assert (await mallory.request(**words, partitions=["t"], **txn)).error == refused
        words = dict(ADD_SUBSCRIPTION)
        subscription = [{"topic": "t", "subscription": "s"}]
        assert (await mallory.request(**words, subscription=subscription, **txn)).error == refused
        await fill(rig, b"2")
        assert await ack_in(mallory, txn, ids(rig, 1)) is not None
        assert await end(alice, txn) is None


@on_loop
async def test_add_to_transaction_requires_permission_for_topic_and_subscription():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        txn = await begin(peer)
        topic = "public/default/t"
        rig.rules.deny(Operation.WRITE, ResourceKind.TOPIC, topic)
        rig.rules.deny(Operation.READ, ResourceKind.TOPIC, topic)

        words: dict[str, Any] = {
            "field": "addPartitionToTxn",
            "answer": "addPartitionToTxnResponse",
        }
        found = await peer.request(**words, partitions=["t"], **txn)
        assert found.error == ServerError.AuthorizationError
        words = dict(ADD_SUBSCRIPTION)
        subscription = [{"topic": "t", "subscription": "s"}]
        found = await peer.request(**words, subscription=subscription, **txn)
        assert found.error == ServerError.AuthorizationError


@on_loop
async def test_pending_acks_are_the_same_after_a_restart():
    """From a snapshot of the flush cut, and from the facts of the journal."""
    async with Rig() as rig, a_producer(rig) as peer:
        await fill(rig, b"0", b"1", b"2")
        await subscribe(peer, kind=SHARED)
        await received(peer)
        txn = await begin(peer)
        assert await ack_in(peer, txn, ids(rig, 0, 2)) is None
        rows = [row.value for row in rig.broker.transactions.table.snapshot()]

        fresh = Rig()
        async with fresh:
            for value in rows:
                assert value is not None
                fresh.broker.transactions.table.load(value)
            transaction = fresh.broker.pulsar_transactions.find_open(TxnId(*txn.values()))
            assert transaction.content() == next(iter(rig.broker.transactions.table)).content()
            (pending,) = transaction.content().acks
            assert list(pending.ranges) == [(0, 1), (2, 3)]
            cursor = Cursor(pending.key, 0, pending.created_ms, {})
            claimed = fresh.broker.transactions.table.pending_acks.claim(cursor)
            assert claimed.missing(0, 3) == [(1, 2)]


@on_loop
async def test_a_new_subscription_gets_no_acks_of_one_with_its_name():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, b"0", b"1")
        peer = await rig.connected()
        await subscribe(peer, kind=SHARED)
        await received(peer)
        txn = await begin(peer)
        assert await ack_in(peer, txn, ids(rig, 0)) is None
        await peer.request("unsubscribe", "success", consumer_id=1)
        rig.now_ms += 1
        await subscribe(peer, kind=SHARED, consumer_id=2)
        assert await offsets(peer) == [0, 1]

        assert await end(peer, txn) is None
        assert mark(rig) == 0


@on_loop
async def test_a_pulsar_client_takes_part_in_a_kafka_producers_transaction():
    """Its TxnID is the producer's epoch << 48 | id; version 2 of Kafka's transactions."""
    async with Rig() as rig, a_producer(rig) as peer:
        await fill(rig, b"0")
        await subscribe(peer, kind=SHARED, consumer_id=2)
        await received(peer)
        kafka = rig.broker.transactions
        made = kafka.init_producer("k", 60_000)
        await wait_on_loop(lambda: made.done, "an identity")
        kafka.end("k", made.result(), commit=False, bumps=True)  # the epoch becomes 1
        await settle()
        identity = ProducerIdentity(made.result().producer_id, 1)
        partition = rig.broker.cluster.topic(rig.name("t")).partitions[0]
        kafka.add_partitions("k", identity, [partition.partition_id])
        txn = {"txnid_most_bits": 0, "txnid_least_bits": 1 << 48 | identity.producer_id}
        await send_in(peer, txn, b"1")
        assert await ack_in(peer, txn, ids(rig, 0), consumer_id=2) is None

        assert await end(peer, txn) is None
        (found,) = await received(peer)
        assert payload(found.section) == b"1"
        assert mark(rig) == 1
        assert await end(await rig.connected(), txn) is None
        repeated = kafka.end("k", identity, commit=True, bumps=True)
        await settle()
        assert repeated.result() == (identity.producer_id, 2)
        with pytest.raises(InvalidTransactionState):
            rig.broker.pulsar_transactions.find_open(TxnId(*txn.values()))


@on_loop
async def test_kafka_joins_a_pulsar_transaction_and_never_begins_one():
    async with Rig() as rig, a_producer(rig) as peer:
        kafka = rig.broker.transactions
        txn = await begin(peer)
        name = f"__pulsar_txn_{txn['txnid_least_bits']}"
        joined = kafka.init_producer(name, 60_000)
        await settle()
        identity = joined.result()
        assert identity == (txn["txnid_least_bits"], 0)
        partition = rig.broker.cluster.topic(rig.name("t")).partitions[0]
        kafka.end(name, identity, commit=True)  # as version 1 of Kafka's transactions ends it
        await settle()

        assert await end(peer, txn) is None
        other = await rig.connected()
        assert await end(other, txn, ABORT) == ServerError.InvalidTxnStatus
        with pytest.raises(InvalidTransactionState):
            kafka.add_partitions(name, identity, [partition.partition_id])
        with pytest.raises(InvalidTransactionState):
            kafka.init_producer(name, 60_000)
        with pytest.raises(InvalidRequest):
            kafka.init_producer("__pulsar_txn_999", 60_000)


@on_loop
async def test_transaction_may_be_larger_than_a_fact():
    """The decision has none of it, so a restart keeps what earlier facts have."""
    async with Rig() as rig, a_producer(rig):
        kafka = rig.broker.transactions
        made = kafka.init_producer("k", 60_000)
        await settle()
        partition = rig.broker.cluster.topic(rig.name("t")).partitions[0]
        move = CursorMove(partition.partition_id, 1, -1, "x" * 4_000)
        for _ in range(300):
            kafka.add_offsets("k", made.result(), "g", [move], adds=True)
        await settle()
        (saved,) = (row.value for row in kafka.table.snapshot())
        assert saved is not None
        row = decode_saved(saved)[0]._replace(state=TransactionState.PREPARE_COMMIT)

        ended = kafka.end("k", made.result(), commit=True)
        await settle()

        assert ended.result() == made.result()
        async with Rig() as fresh:
            fresh.broker.transactions.table.load(saved)
            decision = encode_saved(row, TransactionContent())
            fresh.broker.transactions.table.replay(FactKind.TRANSACTION_SAVED, decision)
            (found,) = fresh.broker.transactions.table
            assert found.state is TransactionState.PREPARE_COMMIT
            assert len(found.content().offsets) == 300
