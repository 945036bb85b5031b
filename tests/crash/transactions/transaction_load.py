"""Workers that run random transactions while the server is killed, and readers of what they commit.

A worker writes a few messages to random partitions, reads committed ones meanwhile, and commits or
aborts. Now and then it leaves a transaction open and begins again with the same transactional id,
as one that was restarted does; the old producer then tries to go on, and has to be refused.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.crash.load import QUICK_RECONNECT, QUIET, reader
from tests.crash.parts import PATIENCE, Part
from tests.crash.transactions.history import History, Outcome, Seen, Transaction, Write

CALL_S = 10.0
TRANSACTION_TIMEOUT_MS = 10_000
ABORTS, ZOMBIES = 0.2, 0.08  # of all transactions
MESSAGES_MAX = 6


def encode(write: Write) -> bytes:
    return f"{write.transaction}/{write.number}/{write.partition}".encode()


def decode(value: bytes) -> Write:
    transaction, number, partition = value.decode().split("/")
    return Write(transaction, int(number), int(partition))


def make_reader(address: str, topic: str, partitions: int) -> Consumer:
    """Return a reader of committed messages, from the first one on."""
    made = reader(address)  # librdkafka reads committed messages by default
    made.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    return made


def take(reader: Consumer, most: int, timeout_s: float) -> Iterator[Seen]:
    for message in reader.consume(most, timeout_s):
        if message.error() is None:
            yield Seen(message.partition(), message.offset(), decode(message.value()))


class Reader(Part):
    """Follows the committed messages during the run."""

    def __init__(self, address: str, topic: str, partitions: int, history: History) -> None:
        super().__init__()
        self.reader = make_reader(address, topic, partitions)
        self.seen = history.readers.setdefault(f"reader-{len(history.readers)}", [])

    def run(self) -> None:
        while not self.stopping.is_set():
            self.seen.extend(take(self.reader, 500, 0.1))
        self.reader.close()


class Worker(Part):
    """One transactional id. `zombies`: how often an old producer was refused."""

    def __init__(
        self,
        address: str,
        topic: str,
        partitions: int,
        history: History,
        lock: threading.Lock,
        *,
        number: int,
        seed: int,
    ) -> None:
        super().__init__()
        self.address, self.topic, self.partitions = address, topic, partitions
        self.history, self.lock = history, lock
        self.name = f"worker-{number}"
        self.random = random.Random(seed)
        self.count = self.zombies = self.committed = 0
        self.broken: list[str] = []
        self.reader = make_reader(address, topic, partitions)

    def run(self) -> None:
        producer = self.restart()
        while not self.stopping.is_set():
            try:
                producer = self.run_transaction(producer)
            except KafkaException:
                # Also of an abort: librdkafka ends a transaction of which a kill lost the
                # beginning, and servers answer INVALID_TXN_STATE.
                producer = self.restart()
        self.reader.close()

    def restart(self) -> Producer:
        """Return a new producer of the same transactional id; it fences the one before."""
        made = Producer(
            {
                "bootstrap.servers": self.address,
                "transactional.id": self.name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 1,
                **QUICK_RECONNECT,
                **QUIET,
            }
        )
        ends = time.monotonic() + PATIENCE
        while True:
            try:
                made.init_transactions(CALL_S)
            except KafkaException as problem:
                if not problem.args[0].retriable() or time.monotonic() > ends:
                    raise
            else:
                return made

    def run_transaction(self, producer: Producer) -> Producer:
        """Run one transaction; return the producer of the next one."""
        self.count += 1
        with self.lock:
            transaction = self.history.begin(f"{self.name}.{self.count}")
        transaction.outcome = Outcome.ABORTED  # until its commit is sent
        producer.begin_transaction()
        for number in range(self.random.randint(1, MESSAGES_MAX)):
            write = Write(transaction.name, number, self.random.randrange(self.partitions))
            transaction.writes.append(write)
            producer.produce(self.topic, encode(write), partition=write.partition)
            if self.random.random() < 0.5:
                producer.poll(0)
                transaction.reads.extend(take(self.reader, 20, 0.002))
        chance = self.random.random()
        if chance < ZOMBIES:
            producer.flush(CALL_S)
            return self.leave_zombie(producer)
        if chance < ZOMBIES + ABORTS:
            producer.abort_transaction(CALL_S)
        else:
            self.commit(producer, transaction)
        return producer

    def commit(self, producer: Producer, transaction: Transaction) -> None:
        """Commit, and repeat that while its end is open."""
        transaction.outcome = Outcome.UNKNOWN
        ends = time.monotonic() + PATIENCE
        while True:
            try:
                producer.commit_transaction(CALL_S)
            except KafkaException as problem:
                error = problem.args[0]
                if error.txn_requires_abort():
                    producer.abort_transaction(CALL_S)
                    transaction.outcome = Outcome.ABORTED
                    return
                if error.name() == "INVALID_TXN_STATE":
                    self.broken.append(f"a commit in a wrong state: {transaction.name}")
                if not error.retriable() or time.monotonic() > ends:
                    raise
            else:
                transaction.outcome = Outcome.COMMITTED
                self.committed += 1
                return

    def leave_zombie(self, zombie: Producer) -> Producer:
        """Start again under the same id; what the old producer still tries has to fail."""
        producer = self.restart()
        try:
            zombie.commit_transaction(CALL_S)
        except KafkaException:
            self.zombies += 1
        else:
            self.broken.append(f"a zombie of {self.name} has committed transaction {self.count}")
        return producer


def read_everything(address: str, topic: str, partitions: int) -> list[Seen]:
    """Read all committed messages of workers."""
    return [
        Seen(each.partition(), each.offset(), decode(each.value()))
        for each in read_committed(address, topic, partitions)
    ]


def find_ends(
    address: str, topic: str, partitions: int, isolation: IsolationLevel
) -> dict[int, int]:
    """Return the end of each partition, or the stable end."""
    admin = AdminClient({"bootstrap.servers": address, **QUIET})
    places = [TopicPartition(topic, number) for number in range(partitions)]
    wanted = {place: OffsetSpec.latest() for place in places}
    found = admin.list_offsets(wanted, isolation_level=isolation)
    return {place.partition: future.result(CALL_S).offset for place, future in found.items()}


def wait_for_stable_end(address: str, topic: str, partitions: int) -> dict[int, int]:
    """Wait until the stable end comes to the end of each partition; return these."""
    deadline = time.monotonic() + 3 * TRANSACTION_TIMEOUT_MS / 1_000
    place = (address, topic, partitions)
    while (ends := find_ends(*place, IsolationLevel.READ_COMMITTED)) != find_ends(
        *place, IsolationLevel.READ_UNCOMMITTED
    ):
        assert time.monotonic() < deadline, "a transaction hangs: the stable end does not move"
        time.sleep(0.1)
    return ends


def read_committed(address: str, topic: str, partitions: int) -> list[Message]:
    """Read all committed messages; the stable end has to come to the end of each partition."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    left = wait_for_stable_end(address, topic, partitions)
    with contextlib.closing(make_reader(address, topic, partitions)) as reader:
        messages: list[Message] = []
        deadline = time.monotonic() + PATIENCE
        while any(position(reader, place) < left[place.partition] for place in places):
            assert time.monotonic() < deadline, "the reader does not come to the end"
            messages.extend(each for each in reader.consume(1_000, 0.2) if each.error() is None)
        return sorted(messages, key=lambda each: (each.partition(), each.offset()))


def position(reader: Consumer, place: TopicPartition) -> int:
    (found,) = reader.position([place])
    return max(found.offset, 0)
