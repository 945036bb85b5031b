"""Foreign clients go on while nodes of a cluster with `ack=shared` give slots away and one is lost.

Each slot has another owner at least once: nodes 1 and 2 are drained, the slots are spread again,
and node 3 is killed with its disk. What was acknowledged is there, once where the protocol promises
that, and no client shows its user more than its own library says of a fail-over.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conformance.clients.base import Deadline, Record
from tests.conformance.clients.confluent import Confluent
from tests.conformance.clients.kafka_apps import TransactionPipe
from tests.conformance.clients.kafka_programs import JAVA_4
from tests.conformance.clients.kafka_shares import ShareMember, Shares
from tests.conformance.clients.pulsar import ClientError, Connection, In, Out, connect
from tests.conformance.clients.pulsar_libraries import PulsarJava
from tests.conformance.pulsar.pulsar_admin import Admin
from tests.crash.kafka.group_load import PacedLoad
from tests.crash.kafka.mixed_groups import MixedGroups
from tests.crash.ledger import Ledger
from tests.crash.load import create_topic, full_read, running
from tests.crash.parts import Part
from tests.crash.transactions.test_streams_kill import (
    INPUT,
    OUTPUT,
    CountReader,
    LineWriter,
    count_words,
    start_streams,
)
from tests.crash.transactions.transaction_load import make_reader, read_committed
from tests.node.cluster.shared_cluster import SharedCluster
from tests.server import Server, run_trilogue
from tests.waiting import wait_until

WAIT_S = 90.0
PARTITIONS = 8
GIVES = (("drain", "1"), ("drain", "2"), ("rebalance",))

Report = Callable[[object], None]
Advance = Callable[[], object]

pytestmark = [pytest.mark.long, pytest.mark.java, pytest.mark.timeout(900)]


def addresses(nodes: list[Server], listener: str = "kafka") -> str:
    return ",".join(node.doors[listener] for node in nodes)


def interrupt(cluster: SharedCluster, nodes: list[Server], advance: Advance) -> str:
    """Move each slot, then lose node 3; `advance` returns when the clients have gone on.

    Returns the seconds that each step took, the clients' included.
    """
    took_s = []
    for words in GIVES:
        began_s = time.monotonic()
        moved = run_trilogue("nodes", *words, "--cluster", cluster.url, timeout=WAIT_S)
        assert moved.returncode == 0, moved.stderr
        advance()
        took_s.append(f"{' '.join(words)} {time.monotonic() - began_s:.1f}")
    began_s = time.monotonic()
    cluster.lose(nodes[2])
    wait_until(lambda: cluster.count("slots WHERE node_id = 3") == 0, timeout_s=WAIT_S)
    advance()
    took_s.append(f"lost {time.monotonic() - began_s:.1f}")
    output = "".join(node.output for node in nodes)
    assert "node.again" not in output, "a node gives and gets slots without a new start"
    return "; ".join(took_s)


def stop(nodes: list[Server]) -> None:
    for node in nodes[:2]:
        assert node.stop() == 0, node.output


@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_streams_count_each_word_exactly_once(
    *,
    cluster: SharedCluster,
    nodes: list[Server],
    chance: random.Random,
    report: Report,
    tmp_path: Path,
    protocol: str,
):
    """Java's transactional producer, a group of either protocol, and a store with a changelog."""
    address = addresses(nodes)
    create_topic(address, INPUT, 2)
    create_topic(address, OUTPUT, 2)
    with contextlib.ExitStack() as stack:
        reader = stack.enter_context(contextlib.closing(make_reader(address, OUTPUT, 2)))
        counts = CountReader(reader)
        app = stack.enter_context(
            start_streams(SimpleNamespace(address=address), tmp_path, "4.3.1", protocol)  # type: ignore[arg-type]
        )

        def advance() -> None:
            counts.wait_for_line(round(time.time() * 1_000))

        with running([LineWriter(address, chance.randrange(10**6))]):
            counts.wait_for(500)
            took = interrupt(cluster, nodes, advance)
        words = count_words(address)
        counts.wait_for(words.total())
        app.close()

    assert "\nfailed" not in app.output
    written: dict[str, list[int]] = defaultdict(list)
    for each in read_committed(address, OUTPUT, 2):
        written[each.key().decode()].append(int.from_bytes(each.value(), "big"))
    report(f"{words.total()} words: {took}")
    assert written == {word: list(range(1, count + 1)) for word, count in words.items()}
    stop(nodes)


def test_plain_transactional_producers_go_on(
    cluster: SharedCluster, nodes: list[Server], report: Report, tmp_path: Path
):
    """Java: a move aborts a transaction that it divides, and fences no producer."""
    address, numbers = addresses(nodes), iter(range(10**6))
    create_topic(address, INPUT, PARTITIONS)
    create_topic(address, OUTPUT, PARTITIONS)
    settings = {
        "bootstrap.servers": address,
        "group.id": "pipe",
        "threads": 8,
        "hold.ms": 300,
        "max.poll.records": 20,
        "session.timeout.ms": 6_000,
        "transaction.timeout.ms": 60_000,
    }
    expected: set[bytes] = set()
    seen: Counter[bytes] = Counter()
    writer = Confluent()
    with contextlib.ExitStack() as stack:
        reader = stack.enter_context(contextlib.closing(make_reader(address, OUTPUT, PARTITIONS)))
        app = stack.enter_context(
            TransactionPipe(tmp_path / "pipe", "4.3.1", (INPUT, OUTPUT), settings)
        )

        def advance() -> None:
            values = [b"%d" % next(numbers) for _ in range(300)]
            writer.write(address, INPUT, [Record(each, each) for each in values])
            expected.update(values)
            deadline = Deadline("all messages are passed on", WAIT_S)
            while not expected <= seen.keys():
                deadline.check((sorted(expected - seen.keys())[:5], app.output[-2_000:]))
                messages = reader.consume(1_000, 0.1)
                seen.update(each.value() for each in messages if each.error() is None)

        def keep_writing() -> None:
            """Let each thread have a transaction open while slots move."""
            while not moved.wait(0.05):
                values = [b"%d" % next(numbers) for _ in range(20)]
                writer.write(address, INPUT, [Record(each, each) for each in values])
                expected.update(values)

        moved = threading.Event()
        load = threading.Thread(target=keep_writing, daemon=True)
        advance()
        load.start()
        try:
            took = interrupt(cluster, nodes, lambda: None)
        finally:
            moved.set()
            load.join(WAIT_S)
        advance()
        app.close()
    aborted = [line for line in app.output.splitlines() if line.startswith("aborted")]
    output = "".join(node.output for node in nodes)
    given = [line for line in output.splitlines() if "slots.given" in line]
    report(f"{len(expected)} messages; {took}; {Counter(aborted)}; {app.output[-20:]}; {given}")
    assert "failed" not in app.output, app.output
    assert seen == Counter(expected)
    stop(nodes)


def test_groups_of_both_kinds_go_on(
    cluster: SharedCluster, nodes: list[Server], chance: random.Random, report: Report
):
    """Classic members and those of KIP-848, of librdkafka, aiokafka and Java."""
    JAVA_4.require()
    address, topic = addresses(nodes), "t"
    JAVA_4.request("create", address, topic="first", partitions=1)  # its program takes a while
    ledger = Ledger(chance.randbytes(8))
    create_topic(address, topic, 4)
    load = PacedLoad(address, topic, 4, ledger, number=1, seed=chance.randrange(10**6))
    groups = MixedGroups(address, topic, 4, ledger, with_java=True)
    problems: list[list[str]] = []

    def advance() -> None:
        groups.settle()
        ledger.wait_for_acks(200, WAIT_S)
        problems.append(groups.problems)

    try:
        with running([load, *groups.parts]):
            advance()
            took = interrupt(cluster, nodes, advance)
            load.stop()
            groups.wait_until_read(WAIT_S)
    finally:
        JAVA_4.stop()
    verdict = ledger.verdict(full_read(address, topic, 4))
    report(f"{verdict}; {took}; commits {groups.commits}; {problems[:-1]}")
    assert verdict.bad == {}, verdict.examples
    groups.assert_good()
    stop(nodes)


class ShareAcceptor(Part):
    """A share consumer of Java's that accepts each record; `accepted` counts those confirmed."""

    def __init__(self, member: ShareMember, accepted: Counter[str]) -> None:
        super().__init__()
        self.member, self.accepted = member, accepted
        self.errors: Counter[str] = Counter()
        self.deliveries = 0

    def run(self) -> None:
        while not self.stopping.is_set():
            records = self.member.poll()
            self.deliveries += len(records)
            self.member.acknowledge("accept", records)
            results = self.member.commit()
            self.errors.update(filter(None, results.values()))
            done = {int(partition) for partition, error in results.items() if not error}
            self.accepted.update(each.value for each in records if each.partition in done)


@pytest.fixture
def shares() -> Iterator[Shares]:
    made = Shares()
    yield made
    made.stop()


def test_share_consumers_go_on(
    cluster: SharedCluster, nodes: list[Server], shares: Shares, report: Report
):
    """What was accepted never comes again, and everything is accepted in the end."""
    address, topic, group = addresses(nodes), "topic", "survivors"
    create_topic(address, topic, PARTITIONS)
    shares.configure(
        address,
        group,
        {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "15000"},
    )
    accepted: Counter[str] = Counter()
    members = [shares.open(address, group, topic, {"max.poll.records": 20}) for _ in range(2)]
    acceptors = [ShareAcceptor(each, accepted) for each in members]
    writer, rounds = Confluent(), iter(range(100))
    expected: set[str] = set()

    def advance() -> None:
        number = next(rounds)
        values = [f"v{number}-{each}" for each in range(120)]
        expected.update(values)
        writer.write(address, topic, [Record(each.encode(), each.encode()) for each in values])
        deadline = Deadline("all records are accepted", WAIT_S)
        while not expected <= accepted.keys():
            deadline.check(sorted(expected - accepted.keys())[:5])
            threading.Event().wait(0.05)

    with running(list[threading.Thread](acceptors)):
        advance()
        took = interrupt(cluster, nodes, advance)
    errors = [dict(each.errors) for each in acceptors]
    report(f"{len(expected)} records, {sum(a.deliveries for a in acceptors)} deliveries; {took}")
    report(errors)
    assert accepted.keys() == expected
    assert {value: count for value, count in accepted.items() if count > 1} == {}
    stop(nodes)


class PulsarPipe(Part):
    """Java: each transaction writes what a consumer of Key_Shared got, and acks it."""

    def __init__(self, connection: Connection, source: str, target: str) -> None:
        super().__init__()
        self.connection = connection
        self.consumer = connection.consumer(
            source, "pipe", type="key_shared", earliest=True, queue=20, batch_index=True
        )
        self.producer = connection.producer(target, send_timeout_ms=0)
        self.errors: Counter[str] = Counter()

    def run(self) -> None:
        while not self.stopping.is_set():
            if reads := self.consumer.receive_up_to(10):
                self.pass_on(reads)

    def pass_on(self, reads: list[In]) -> None:
        transaction = None
        try:
            transaction = self.connection.begin()
            outs = [Out(each.value, key=each.key) for each in reads]
            self.producer.send(*outs, transaction=transaction)
            self.consumer.ack(*reads, transaction=transaction)
            transaction.commit()
        except ClientError as error:
            self.errors[str(error)[:100]] += 1
            with contextlib.suppress(ClientError):
                if transaction is not None:
                    transaction.abort()
            self.consumer.nack(*reads)


class PulsarFollower(Part):
    """A reader of Java's client: what is committed, as it comes."""

    def __init__(self, connection: Connection, topic: str) -> None:
        super().__init__()
        self.reader = connection.reader(topic)
        self.seen: Counter[bytes] = Counter()

    def run(self) -> None:
        while not self.stopping.is_set():
            self.seen.update(each.value or b"" for each in self.reader.receive_up_to(100))


def test_pulsars_transactions_and_keys_go_on(
    cluster: SharedCluster, nodes: list[Server], report: Report
):
    """Two consumers of Key_Shared pass on all messages, each once; a reader follows."""
    url = f"pulsar://{addresses(nodes, 'pulsar')}"
    admin = Admin(nodes[0].http)
    admin.deduplicate("public/default", on=True)
    for topic in ("source", "target"):
        admin.make_partitioned(topic, PARTITIONS)
    library = PulsarJava()
    try:
        connection = connect(library, url, transactions=True)
        pipes = [PulsarPipe(connection, "source", "target") for _ in range(2)]
        follower = PulsarFollower(connection, "target")
        writer, rounds = connection.producer("source", send_timeout_ms=0), iter(range(100))
        expected: set[bytes] = set()

        def advance() -> None:
            number = next(rounds)
            outs = [Out(b"%d-%d" % (number, n), key=f"key-{n % 20}") for n in range(100)]
            writer.send(*outs)
            expected.update(each.value or b"" for each in outs)
            deadline = Deadline("all messages are passed on", WAIT_S)
            while not expected <= follower.seen.keys():
                errors = [dict(each.errors) for each in pipes]
                deadline.check((sorted(expected - follower.seen.keys())[:5], errors))
                threading.Event().wait(0.05)

        with running(list[threading.Thread]([*pipes, follower])):
            advance()
            took = interrupt(cluster, nodes, advance)
    finally:
        library.stop()
    report(f"{len(expected)} messages: {took}; {[dict(each.errors) for each in pipes]}")
    assert follower.seen == Counter(expected)
    stop(nodes)
