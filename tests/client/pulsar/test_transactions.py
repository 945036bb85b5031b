"""Transactions: what is sent to which broker in which order, and what is done when it fails."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from tests.client.pulsar.scripted import (
    HANG_UP,
    SILENCE,
    TOPIC,
    Peer,
    ScriptedPulsar,
    batch,
    on_broker,
    receipt,
    send_error,
    single,
)
from tests.waiting import run_ready_tasks
from trilogue.client.errors import ClientError, InvalidOption
from trilogue.client.pulsar import (
    Batching,
    MessageId,
    PulsarClient,
    PulsarError,
    SubscriptionType,
    TransactionAborted,
    TransactionNotFound,
    TransactionState,
    TxnId,
)
from trilogue.client.pulsar.coordinators import TOPIC as COORDINATORS
from trilogue.client.pulsar.section import read_section
from trilogue.wire.pulsar import pulsar_pb2 as pb
from trilogue.wire.pulsar.errors import ServerError

LONG = Batching(max_delay_s=60)
REQUESTS = (
    "TC_CLIENT_CONNECT_REQUEST", "NEW_TXN", "ADD_PARTITION_TO_TXN", "ADD_SUBSCRIPTION_TO_TXN",
    "SEND", "ACK", "END_TXN",
)  # fmt: skip
COMMIT, ABORT = pb.TxnAction.COMMIT, pb.TxnAction.ABORT


def actions(broker: ScriptedPulsar) -> list[int]:
    return [end.txn_action for end in broker.all("END_TXN")]


def end_error(code: ServerError) -> Any:
    def answer(peer: Peer, query: Any) -> None:
        refusal = pb.CommandEndTxnResponse(request_id=query.request_id, error=int(code))
        peer.send(endTxnResponse=refusal)

    return answer


@on_broker
async def test_topics_and_subscriptions_are_added_before_messages_and_acks(
    broker: ScriptedPulsar, client: PulsarClient
):
    consumer = await client.subscribe("t", "s")
    producer = await client.producer("t", batching=LONG)
    broker.peers[0].message(batch(b"a", b"b", b"c"))
    messages = await consumer.receive_many(3)
    async with client.transaction(timeout_s=2.5) as transaction:
        for value in (b"x", b"y"):
            await producer.submit(value, transaction=transaction)
        await producer.submit(b"alone")
        await consumer.ack(messages[1], transaction=transaction)
        await consumer.ack_through(messages[1], transaction=transaction)

    assert broker.names(*REQUESTS) == [
        "TC_CLIENT_CONNECT_REQUEST", "NEW_TXN", "ADD_PARTITION_TO_TXN", "SEND",
        "ADD_SUBSCRIPTION_TO_TXN", "ACK", "ACK", "SEND", "END_TXN",
    ]  # fmt: skip
    assert broker.all("NEW_TXN")[0].txn_ttl_seconds == 2_500
    assert broker.all("ADD_PARTITION_TO_TXN")[0].partitions == [TOPIC]
    (subscription,) = broker.all("ADD_SUBSCRIPTION_TO_TXN")[0].subscription
    assert (subscription.topic, subscription.subscription) == (TOPIC, "s")
    assert transaction.id == TxnId(0, 0)
    of_it = (*broker.all("ACK"), broker.all("SEND")[0])
    assert all(
        one.HasField("txnid_most_bits") and one.HasField("txnid_least_bits") for one in of_it
    )
    assert [each.message_id[0].ack_set for each in broker.all("ACK")] == [[0b101], [0b100]]
    section = read_section(memoryview(broker.sections[0])).metadata
    assert (section.num_messages, section.has_txn) == (2, True)  # the batch ends with it
    section = read_section(memoryview(broker.sections[1])).metadata
    assert (section.num_messages, section.has_txn) == (1, False)


@on_broker
async def test_the_end_waits_for_every_answer(broker: ScriptedPulsar, client: PulsarClient):
    producer = await client.producer("t", batching=LONG)
    waiting: list[tuple[Peer, Any]] = []
    broker.next_up["SEND"].append(lambda *request: waiting.append(request))
    transaction = await client.begin_transaction()
    await producer.submit(b"x", transaction=transaction)
    held: list[tuple[Peer, Any]] = []
    broker.next_up["ADD_PARTITION_TO_TXN"].append(lambda *request: held.append(request))
    other = await client.producer("u", batching=LONG)
    sending = asyncio.ensure_future(other.send(b"y", transaction=transaction))
    await broker.saw("ADD_PARTITION_TO_TXN", 2)
    ending = asyncio.ensure_future(transaction.commit())
    await broker.saw("SEND")
    with pytest.raises(ClientError, match="committing"):
        await producer.send(b"z", transaction=transaction)
    peer, send = waiting[0]
    receipt(peer, send, 0)
    await run_ready_tasks()
    assert transaction.state is TransactionState.COMMITTING
    assert broker.names("END_TXN") == []
    ScriptedPulsar.on_add_partition_to_txn(broker, *held[0])
    await ending
    await sending

    assert broker.names("SEND", "END_TXN") == ["SEND", "SEND", "END_TXN"]
    assert transaction.state is TransactionState.COMMITTED


@on_broker
async def test_a_message_that_is_not_stored_aborts(broker: ScriptedPulsar, client: PulsarClient):
    producer = await client.producer("t")
    broker.next_up["SEND"].append(send_error(ServerError.NotAllowedError))

    async def send_both() -> None:
        async with client.transaction() as transaction:
            await producer.submit(b"x", transaction=transaction)

    with pytest.raises(TransactionAborted, match="NotAllowedError"):
        await send_both()
    assert actions(broker) == [ABORT]


@on_broker
async def test_a_message_that_was_cancelled_aborts(broker: ScriptedPulsar, client: PulsarClient):
    """It may be stored or not; its receipt cannot be waited for."""
    producer = await client.producer("t")
    broker.next_up["SEND"].append(SILENCE)
    transaction = await client.begin_transaction()
    sending = asyncio.ensure_future(producer.send(b"x", transaction=transaction))
    await broker.saw("SEND")
    sending.cancel()
    await asyncio.wait([sending])

    with pytest.raises(TransactionAborted, match="cancelled"):
        await transaction.commit()
    assert actions(broker) == [ABORT]


@on_broker(request_timeout_s=0.3)
async def test_a_commit_that_was_given_up_can_be_aborted(
    broker: ScriptedPulsar, client: PulsarClient
):
    producer = await client.producer("t")
    broker.next_up["SEND"].append(SILENCE)

    async def commit() -> None:
        async with client.transaction() as transaction:
            waiting.append(await producer.submit(b"x", transaction=transaction))
            ending = asyncio.ensure_future(transaction.commit())
            await broker.saw("SEND")
            ending.cancel()
            await asyncio.wait([ending])
            assert transaction.state is TransactionState.OPEN
            waiting[0].cancel()
            raise KeyError

    waiting: list[asyncio.Future[Any]] = []
    with pytest.raises(KeyError):
        await commit()
    assert actions(broker) == [ABORT]


@on_broker
async def test_an_ack_whose_answer_is_lost_aborts(broker: ScriptedPulsar, client: PulsarClient):
    consumer = await client.subscribe("t", "s")
    broker.peers[0].message(batch(b"a"))
    message = await consumer.receive()
    broker.next_up["ACK"].append(HANG_UP)
    transaction = await client.begin_transaction()
    with pytest.raises(ClientError):
        await consumer.ack(message, transaction=transaction)

    with pytest.raises(TransactionAborted):
        await transaction.commit()
    assert actions(broker) == [ABORT]


@on_broker
async def test_an_end_is_repeated_until_its_answer(broker: ScriptedPulsar, client: PulsarClient):
    """After a lost connection, and where the coordinator has moved: by another lookup."""
    transaction = await client.begin_transaction()
    broker.next_up["END_TXN"].extend(
        [HANG_UP, end_error(ServerError.TransactionCoordinatorNotFound)]
    )
    await transaction.commit()

    assert actions(broker) == [COMMIT] * 3
    assert broker.names("LOOKUP", "TC_CLIENT_CONNECT_REQUEST", "END_TXN") == [
        "LOOKUP", "TC_CLIENT_CONNECT_REQUEST", "END_TXN",
    ] * 3  # fmt: skip


@on_broker(request_timeout_s=0.3)
async def test_a_commit_without_an_answer_is_repeated_by_its_caller(
    broker: ScriptedPulsar, client: PulsarClient
):
    broker.next_up["END_TXN"].append(SILENCE)
    transaction = await client.begin_transaction()
    with pytest.raises(ClientError):
        await transaction.commit()
    assert transaction.state is TransactionState.COMMITTING
    with pytest.raises(ClientError, match="committing"):
        await transaction.abort()
    await transaction.commit()
    await transaction.commit()

    assert actions(broker) == [COMMIT] * 2


@pytest.mark.parametrize(
    ("code", "error", "state"),
    [
        (ServerError.InvalidTxnStatus, TransactionAborted, TransactionState.ABORTED),
        (ServerError.TransactionNotFound, TransactionNotFound, TransactionState.COMMITTING),
        (ServerError.NotAllowedError, PulsarError, TransactionState.COMMITTING),
    ],
)
@on_broker
async def test_a_commit_is_refused(
    broker: ScriptedPulsar,
    client: PulsarClient,
    code: ServerError,
    error: type[Exception],
    state: TransactionState,
):
    broker.next_up["END_TXN"].append(end_error(code))
    transaction = await client.begin_transaction()
    with pytest.raises(error):
        await transaction.commit()
    assert transaction.state is state


@on_broker
async def test_a_transaction_that_is_forgotten_is_aborted(
    broker: ScriptedPulsar, client: PulsarClient
):
    broker.next_up["END_TXN"].append(end_error(ServerError.TransactionNotFound))
    transaction = await client.begin_transaction()
    await transaction.abort()

    assert transaction.state is TransactionState.ABORTED


@on_broker
async def test_coordinators_take_turns(broker: ScriptedPulsar, client: PulsarClient):
    broker.partitions[COORDINATORS] = 3
    for _ in range(4):
        async with client.transaction() as transaction:
            assert transaction.id.most == broker.all("NEW_TXN")[-1].tc_id

    topics = [query.topic for query in broker.all("LOOKUP")]
    assert sorted(topics) == [f"{COORDINATORS}-partition-{number}" for number in range(3)]
    assert sorted(new.tc_id for new in broker.all("NEW_TXN")) in ([0, 0, 1, 2], [0, 1, 1, 2])
    assert [end.txnid_most_bits for end in broker.all("END_TXN")] == [
        new.tc_id for new in broker.all("NEW_TXN")
    ]


@on_broker
async def test_a_broker_of_protocol_18_needs_no_connect_request(
    broker: ScriptedPulsar, client: PulsarClient
):
    broker.version = 18
    async with client.transaction():
        pass

    assert broker.names(*REQUESTS) == ["NEW_TXN", "END_TXN"]


@pytest.mark.parametrize("batch_index", [False, True])
@on_broker
async def test_a_batch_is_acked_by_a_transaction_and_without(
    broker: ScriptedPulsar, client: PulsarClient, batch_index: bool
):
    """The entry is acked as soon as all of its messages are, whichever way."""
    consumer = await client.subscribe("t", "s", batch_index_acks=batch_index)
    broker.peers[0].message(batch(b"a", b"b"))
    first, second = await consumer.receive_many(2)
    await consumer.ack(first)
    async with client.transaction() as transaction:
        await consumer.ack(second, transaction=transaction)
    await broker.saw("ACK", 2)

    acks = [
        (ack.HasField("txnid_least_bits"), list(ack.message_id[0].ack_set))
        for ack in broker.all("ACK")
    ]
    assert acks == (
        [(False, [0b10]), (True, [0b01])] if batch_index else [(True, [0b01]), (False, [])]
    )


@on_broker
async def test_a_wrong_time_out_is_refused(broker: ScriptedPulsar, client: PulsarClient):
    begin = partial(client.begin_transaction, timeout_s=0)
    with pytest.raises(InvalidOption, match="timeout_s"):
        await begin()
    assert broker.names("NEW_TXN") == []


@on_broker
async def test_a_message_of_a_batch_comes_again_after_the_abort(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Also where the batch came in between, without the message that the transaction had."""
    consumer = await client.subscribe("t", "s", type=SubscriptionType.SHARED)
    broker.peers[0].message(batch(b"a", b"b"))
    first, second = await consumer.receive_many(2)
    transaction = await client.begin_transaction()
    await consumer.ack(first, transaction=transaction)
    await consumer.ack(second)
    broker.peers[0].message(batch(b"a", b"b"), ack_set=[0b10])
    await broker.saw("ACK", 2)
    await transaction.abort()
    broker.peers[0].message(batch(b"a", b"b"), ack_set=[0b01])

    assert (await consumer.receive(5)).value == b"a"
    assert list(broker.all("ACK")[1].message_id[0].ack_set) == [0b01]


@on_broker
async def test_an_id_of_another_consumer_is_acked_alone(
    broker: ScriptedPulsar, client: PulsarClient
):
    consumer = await client.subscribe("t", "s")
    async with client.transaction() as transaction:
        await consumer.ack(MessageId(1, 0, 1, batch_size=3), transaction=transaction)
    await consumer.close()

    assert [list(ack.message_id[0].ack_set) for ack in broker.all("ACK")] == [[0b101]]


@on_broker
async def test_receipts_of_different_transactions_come_in_any_order(
    broker: ScriptedPulsar, client: PulsarClient
):
    """A real broker stores messages outside of transactions before earlier ones in them."""
    producer = await client.producer("t", batching=None)
    held: list[tuple[Peer, Any]] = []
    broker.next_up["SEND"].extend([lambda *request: held.append(request)] * 4)
    async with client.transaction() as transaction:
        futures = [
            await producer.submit(b"x", transaction=within)
            for within in (transaction, None, transaction, None)
        ]
        await broker.saw("SEND", 4)
        for number in (1, 3, 0, 2):
            receipt(*held[number], number)
        places = [(await future).entry_id for future in futures]

    assert places == [0, 1, 2, 3]
    assert len(broker.all("PRODUCER")) == 1


@on_broker
async def test_acks_of_one_turn_go_together(broker: ScriptedPulsar, client: PulsarClient):
    """Of a batch by one id; of cumulative ones the last."""
    consumer = await client.subscribe("t", "s")
    broker.peers[0].message(batch(b"a", b"b", b"c", b"d"))
    broker.peers[0].message(single(b"e"), 1)
    messages = [await consumer.receive(5) for _ in range(5)]
    async with client.transaction() as transaction:
        await asyncio.gather(
            *(consumer.ack(messages[at], transaction=transaction) for at in (0, 2, 4))
        )
        await asyncio.gather(
            *(consumer.ack_through(messages[at], transaction=transaction) for at in (3, 1))
        )

    individual, through = broker.all("ACK")
    assert [(each.entryId, list(each.ack_set)) for each in individual.message_id] == [
        (0, [0b1010]),
        (1, []),
    ]
    assert [(each.entryId, list(each.ack_set)) for each in through.message_id] == [(0, [])]
