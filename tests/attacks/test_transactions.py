"""Clients that open transactions without end: ids, partitions, acks, repeated ends, time-outs.

Memory and the work of the event loop stay within bounds. Plain clients of all protocols, and a
producer of Kafka that commits again and again, are answered meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence

import pytest
from confluent_kafka import Producer
from tools.servers.probe import receive

from tests.attacks.node import AttackedNode, Report, attack
from tests.brokers import make_topic
from tests.conformance.asking import Asker
from tests.crash.hostile import Healthy, dial
from tests.crash.pulsar.test_hostile import CONNECT, TYPES, command
from tests.waiting import wait_until
from trilogue.broker.transactions.transaction import TransactionLimits
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.transactions.add_partitions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from trilogue.wire.kafka.transactions.end_txn import EndTxnRequest
from trilogue.wire.kafka.transactions.init_producer_id import InitProducerIdRequest
from trilogue.wire.kafka.transactions.list_transactions import ListTransactionsRequest
from trilogue.wire.pulsar.frame import encode_command
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand

PIPELINED = 200  # requests on their way at a time
TIMEOUT_MS = 60_000
SHORT_MS = 1_000
WIDE = 500  # partitions of a topic
LIMITS = TransactionLimits()
LONG = pytest.mark.long
CALL_S = 60.0
Producers = dict[str, tuple[int, int]]  # producer id and epoch by transactional id


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedNode]:
    made = AttackedNode(tmp_path_factory.mktemp("transactions")).start()
    make_topic(made.address, "wide", WIDE)
    yield made
    made.kill9()


def committing(node: AttackedNode) -> dict[str, Healthy]:
    """A well-behaved producer, which commits one message at a time."""
    producer = Producer({"bootstrap.servers": node.address, "transactional.id": "healthy"})
    producer.init_transactions(CALL_S)

    def commit() -> None:
        producer.begin_transaction()
        producer.produce("healthy", b"value")
        producer.commit_transaction(CALL_S)

    return {"Kafka's transactions": Healthy(node.pid, commit, lambda: None)}


def ask_all(asker: Asker, requests: Iterable[object], version: int) -> Iterator[object]:
    """Send requests, some at a time, and yield their responses."""
    waiting = 0
    for request in requests:
        asker.send(request, version)
        waiting += 1
        if waiting == PIPELINED:
            yield asker.answer()
            waiting -= 1
    for _ in range(waiting):
        yield asker.answer()


def init_all(asker: Asker, names: Sequence[str], timeout_ms: int = TIMEOUT_MS) -> Producers:
    """Return the producers of the ids that are accepted."""
    requests = (
        InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
        for name in names
    )
    found: Producers = {}
    for name, answer in zip(names, ask_all(asker, requests, 4), strict=True):
        assert answer.error_code in {ErrorCode.NONE, ErrorCode.POLICY_VIOLATION}
        if not answer.error_code:
            found[name] = answer.producer_id, answer.producer_epoch
    return found


def add_all(asker: Asker, producers: Producers, partitions: int) -> int:
    """Add partitions to a transaction of each producer; return how many were accepted."""
    requests = (
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name="wide", partitions=list(range(partitions)))
            ],
        )
        for name, (producer_id, epoch) in producers.items()
    )
    accepted = 0
    for answer in ask_all(asker, requests, 3):
        (topic,) = answer.results_by_topic_v3_and_below
        (code,) = {each.partition_error_code for each in topic.results_by_partition}
        assert code in {ErrorCode.NONE, ErrorCode.POLICY_VIOLATION}
        accepted += not code
    return accepted


def end_requests(producers: Producers) -> Iterator[EndTxnRequest]:
    for name, (producer_id, epoch) in producers.items():
        yield EndTxnRequest(
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=True,
        )


@pytest.mark.parametrize(
    ("ids", "partitions"),
    [
        pytest.param(200, WIDE, id="partitions"),
        pytest.param(3_000, 1, id="ids", marks=LONG),
        pytest.param(LIMITS.ids_max + 100, 2, id="ids-long", marks=LONG),
        pytest.param(1_100, WIDE, id="partitions-long", marks=LONG),
    ],
)
@pytest.mark.timeout(600)
def test_open_transactions_without_end(
    node: AttackedNode, report: Report, ids: int, partitions: int
):
    """What is over the bounds is refused, and room is there again when transactions end."""
    most = LIMITS.parts_max // partitions
    names = [f"hostile-{number}" for number in range(ids)]
    with (
        attack(node, report, most_s=5.0, more=committing(node)),
        Asker(node.address, timeout=CALL_S) as asker,
    ):
        producers = init_all(asker, names)
        assert len(producers) == min(ids, LIMITS.ids_max - 1)
        accepted = add_all(asker, producers, partitions)
        assert min(most - 10, len(producers)) <= accepted <= most
        for answer in ask_all(asker, end_requests(producers), 3):
            assert answer.error_code in {ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE}
        assert add_all(asker, dict(list(producers.items())[:10]), partitions) == 10


@pytest.mark.parametrize("times", [5_000, pytest.param(100_000, marks=LONG)])
@pytest.mark.timeout(600)
def test_initialisations_of_one_id_and_repeated_ends(
    node: AttackedNode, report: Report, times: int
):
    """Each initialisation fences the one before: its end is refused, however often it comes."""
    with (
        attack(node, report, most_s=2.0, more=committing(node)),
        Asker(node.address, timeout=CALL_S) as asker,
    ):
        first = init_all(asker, ["storm"])
        last = init_all(asker, ["storm"] * times)
        assert add_all(asker, last, 1) == 1
        late = (each for _ in range(times) for each in end_requests(first))
        codes = {answer.error_code for answer in ask_all(asker, late, 3)}
        assert codes <= {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
        repeated = (each for _ in range(times) for each in end_requests(last))
        codes = {answer.error_code for answer in ask_all(asker, repeated, 3)}
        assert codes <= {ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS}


@pytest.mark.parametrize("ids", [1_000, pytest.param(20_000, marks=LONG)])
@pytest.mark.parametrize(
    "stop_s", [pytest.param(0.0, id="running", marks=LONG), pytest.param(3.0, id="stopped")]
)
@pytest.mark.timeout(600)
def test_transactions_that_time_out_at_once(
    node: AttackedNode, report: Report, ids: int, stop_s: float
):
    """Also of a process that was stopped past their time-outs, and goes on."""
    names = [f"late-{number}" for number in range(ids)]
    with (
        attack(node, report, most_s=2.0, more=committing(node)),
        Asker(node.address, timeout=CALL_S) as asker,
    ):
        producers = init_all(asker, names, SHORT_MS)
        add_all(asker, producers, 4)
        if stop_s:
            os.kill(node.pid, signal.SIGSTOP)
            time.sleep(stop_s)  # by design: longer than the time-outs
            os.kill(node.pid, signal.SIGCONT)
        wait_until(lambda: not open_transactions(node), lambda: open_transactions(node), CALL_S)
        codes = {answer.error_code for answer in ask_all(asker, end_requests(producers), 3)}
        assert codes <= {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}


def open_transactions(node: AttackedNode) -> list[str]:
    """Return the ids with an open transaction, but for the well-behaved one."""
    with Asker(node.address, timeout=CALL_S) as asker:
        answer = asker.request(ListTransactionsRequest(state_filters=["Ongoing"]), 0)
    names = [each.transactional_id for each in answer.transaction_states]
    return [name for name in names if name.startswith(("late", "hostile"))][:5]


class PulsarLine:
    """A raw connection of Pulsar's protocol."""

    def __init__(self, address: str, stack: contextlib.ExitStack) -> None:
        self._peer = stack.enter_context(dial(address))
        self._peer.settimeout(CALL_S)
        self._peer.sendall(CONNECT)
        self.answer()

    def send(self, commands: bytes) -> None:
        self._peer.sendall(commands)

    def answer(self) -> BaseCommand:
        size = int.from_bytes(receive(self._peer, 4))
        frame = receive(self._peer, size)
        return BaseCommand.FromString(frame[4 : 4 + int.from_bytes(frame[:4])])

    def wait(self, field: str) -> object:
        """Return the next answer of a kind."""
        while True:
            found = self.answer()
            assert found.type != TYPES["error"], found
            if found.type == TYPES[field]:
                return getattr(found, field)


def begin_all(line: PulsarLine, count: int) -> list[tuple[int, int]]:
    """Return the TxnIDs of the transactions that are accepted."""
    found = []
    for begin in range(0, count, PIPELINED):
        some = range(begin, min(begin + PIPELINED, count))
        ttl = {"txn_ttl_seconds": TIMEOUT_MS, "tc_id": 0}
        line.send(b"".join(command("newTxn", request_id=each, **ttl) for each in some))
        for _ in some:
            answer = line.wait("newTxnResponse")
            if not answer.HasField("error"):
                found.append((answer.txnid_most_bits, answer.txnid_least_bits))
    return found


@pytest.mark.parametrize("count", [2_000, pytest.param(LIMITS.open_max + 2_000, marks=LONG)])
@pytest.mark.timeout(600)
def test_transactions_of_pulsar_without_end(node: AttackedNode, report: Report, count: int):
    """Each has a pending ack; those over the bound are refused."""
    producer = Producer({"bootstrap.servers": node.address, "batch.num.messages": 1})
    make_topic(node.address, "acked", 1)
    for _ in range(2 * count):
        producer.produce("acked", b"value")
        producer.poll(0)
    assert producer.flush(CALL_S) == 0
    with attack(node, report, most_s=5.0, more=committing(node)) as stack:
        line = PulsarLine(node.doors["pulsar"], stack)
        line.send(subscribe("acked-partition-0"))
        line.wait("success")
        line.send(command("flow", consumer_id=1, messagePermits=1))
        ledger = line.wait("message").message_id.ledgerId
        begun = begin_all(line, count)
        assert len(begun) == min(count, LIMITS.open_max)
        for at in range(0, len(begun), PIPELINED):
            some = list(enumerate(begun[at : at + PIPELINED], at))
            line.send(b"".join(ack(ledger, 2 * number, txn_id) for number, txn_id in some))
            for _ in some:
                assert not line.wait("ackResponse").HasField("error")
        line.send(ack(ledger, 0, begun[-1]))
        assert line.wait("ackResponse").HasField("error"), "it is pending in another transaction"


def subscribe(topic: str) -> bytes:
    made = BaseCommand(type=TYPES["subscribe"])
    made.subscribe.topic, made.subscribe.subscription = topic, "hostile"
    made.subscribe.subType = 1  # shared
    made.subscribe.consumer_id = made.subscribe.request_id = 1
    made.subscribe.initialPosition = 1
    return encode_command(made)


def ack(ledger: int, offset: int, txn_id: tuple[int, int]) -> bytes:
    """An ack of one message in a transaction."""
    made = BaseCommand(type=TYPES["ack"])
    made.ack.consumer_id, made.ack.ack_type, made.ack.request_id = 1, 0, offset + 1
    made.ack.txnid_most_bits, made.ack.txnid_least_bits = txn_id
    made.ack.message_id.add(ledgerId=ledger, entryId=offset)
    return encode_command(made)
