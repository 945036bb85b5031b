"""Workers that run random transactions of clients in other languages: Java's for Kafka of several
releases, Java's and Go's for Pulsar.

Each is one transactional producer, behind a driver of lines. What a worker does is that of
`transaction_load.Worker`: a few messages, a commit or an abort, now and then a second producer of
the same id (Kafka) or a transaction that is left open (Pulsar). Some transactions also write to
topics that an administrator deletes meanwhile.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from tests.conformance.clients.kafka_programs import JavaClient
from tests.conformance.clients.pulsar import (
    ClientError,
    Connection,
    Out,
    PulsarLibrary,
    Sender,
    connect,
)
from tests.crash.parts import PATIENCE, Part
from tests.crash.transactions.history import History, Outcome, Transaction, Write
from tests.crash.transactions.transaction_load import (
    ABORTS,
    MESSAGES_MAX,
    TRANSACTION_TIMEOUT_MS,
    ZOMBIES,
    encode,
)

EXTRA = 0.2  # of all transactions write to another topic, too
PAUSE_S = 0.1  # after an error
JAVA_SETTINGS = {
    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
    "linger.ms": 1,
    "max.block.ms": 10_000,
    "request.timeout.ms": 5_000,
    "delivery.timeout.ms": 15_000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
}
MAY_BE_REPEATED = ("TimeoutException", "InterruptException")
REFUSED = ("ProducerFenced", "InvalidProducerEpoch", "InvalidTxnState", "InvalidPidMapping")


FAILED = (ClientError, TimeoutError)  # late answers: the server was away most of the time
Made = TypeVar("Made")


def retry(work: Callable[[], Made]) -> Made:
    """Return the result of the first try that does not fail."""
    ends = time.monotonic() + PATIENCE
    while True:
        try:
            return work()
        except FAILED:
            if time.monotonic() > ends:
                raise
            time.sleep(PAUSE_S)


class ForeignWorker(Part):
    """The transactions of one client. `broken`: what must not happen."""

    name: str

    def __init__(
        self,
        topic: str,
        partitions: int,
        history: History,
        lock: threading.Lock,
        *,
        seed: int,
        extra: str = "",
    ) -> None:
        super().__init__()
        self.topic, self.partitions, self.extra = topic, partitions, extra
        self.history, self.lock = history, lock
        self.random = random.Random(seed)
        self.numbers = itertools.count(1)
        self.committed = self.refused = 0
        self.broken: list[str] = []

    def run(self) -> None:
        try:
            self.work()
        except BaseException as problem:
            self.broken.append(f"{self.name} ended: {problem!r}")
            raise

    def work(self) -> None:
        raise NotImplementedError

    def begin(self) -> Transaction:
        """Record another transaction; it is aborted until its commit is requested."""
        with self.lock:
            made = self.history.begin(f"{self.name}.{next(self.numbers)}")
        made.outcome = Outcome.ABORTED
        return made

    def choose_writes(self, transaction: Transaction) -> Iterator[Write]:
        """Yield what a transaction writes."""
        for number in range(self.random.randint(1, MESSAGES_MAX)):
            write = Write(transaction.name, number, self.random.randrange(self.partitions))
            transaction.writes.append(write)
            yield write

    def note_commit(self, transaction: Transaction) -> None:
        transaction.outcome = Outcome.COMMITTED
        self.committed += 1


class JavaWorker(ForeignWorker):
    """KafkaProducer of one release. `refused`: how often a zombie's commit was."""

    def __init__(self, client: JavaClient, address: str, *place: object, **how: object) -> None:
        super().__init__(*place, **how)  # type: ignore[arg-type]
        self.client, self.address = client, address
        self.name = client.name.replace(".", "-")
        self.handle: object = None

    def work(self) -> None:
        self.handle = self.open()
        while not self.stopping.is_set():
            try:
                self.run_transaction()
            except FAILED:
                self.close(self.handle)
                self.handle = self.open()

    def request(self, verb: str, **words: object) -> object:
        return self.client.request(verb, of=self.handle, **words)

    def open(self) -> object:
        """Return a new producer of the id; it fences the one before."""
        settings = {key: str(value) for key, value in JAVA_SETTINGS.items()}
        words = {"transaction": self.name, "settings": settings}
        return retry(lambda: self.client.request("open_producer", self.address, **words))

    def close(self, handle: object) -> None:
        with contextlib.suppress(*FAILED):
            self.client.request("close_producer", of=handle)

    def send(self, topic: str, writes: list[Write]) -> None:
        records = [
            {"partition": each.partition, "value": base64.b64encode(encode(each)).decode()}
            for each in writes
        ]
        self.request("send", topic=topic, records=records)

    def run_transaction(self) -> None:
        transaction = self.begin()
        self.request("begin_transaction")
        self.send(self.topic, list(self.choose_writes(transaction)))
        if self.extra and self.random.random() < EXTRA:
            self.send(self.extra, [Write(transaction.name, -1, 0)])
        chance = self.random.random()
        if chance < ZOMBIES:
            self.leave_zombie(transaction)
        elif chance < ZOMBIES + ABORTS:
            self.request("end_transaction", commit=False)
        else:
            self.commit(transaction)

    def commit(self, transaction: Transaction) -> None:
        """Commit, and repeat that while its end is open."""
        transaction.outcome = Outcome.UNKNOWN
        ends = time.monotonic() + PATIENCE
        while True:
            try:
                self.request("end_transaction", commit=True)
            except ClientError as problem:
                if str(problem).startswith(MAY_BE_REPEATED) and time.monotonic() < ends:
                    continue
                if not str(problem).startswith(REFUSED):
                    self.request("end_transaction", commit=False)
                    transaction.outcome = Outcome.ABORTED
                raise
            self.note_commit(transaction)
            return

    def leave_zombie(self, transaction: Transaction) -> None:
        """Start again under the same id; what the old producer still tries has to fail."""
        zombie, self.handle = self.handle, self.open()
        try:
            self.client.request("end_transaction", of=zombie, commit=True)
        except FAILED:
            self.refused += 1
        else:
            self.broken.append(f"a zombie has committed {transaction.name}")
        self.close(zombie)


class PulsarLibraryWorker(ForeignWorker):
    """A client of Pulsar's, with a producer for each partition."""

    def __init__(self, library: PulsarLibrary, url: str, *place: object, **how: object) -> None:
        super().__init__(*place, **how)  # type: ignore[arg-type]
        self.library, self.url = library, url
        self.name = f"pulsar-{library.name}"

    def work(self) -> None:
        connection = retry(lambda: connect(self.library, self.url, transactions=True))
        senders = [
            retry(partial(self.open, connection, number)) for number in range(self.partitions)
        ]
        while not self.stopping.is_set():
            try:
                self.run_transaction(connection, senders)
            except FAILED:
                time.sleep(PAUSE_S)
        with contextlib.suppress(*FAILED):
            connection.close()

    def open(self, connection: Connection, number: int) -> Sender:
        topic = f"{self.topic}-partition-{number}"
        return connection.producer(topic, batching=False, send_timeout_ms=0)

    def run_transaction(self, connection: Connection, senders: list[Sender]) -> None:
        inner = connection.begin(timeout_ms=TRANSACTION_TIMEOUT_MS)
        transaction = self.begin()
        try:
            for write in self.choose_writes(transaction):
                senders[write.partition].send(Out(encode(write)), transaction=inner)
        except ClientError:
            inner.abort()
            raise
        chance = self.random.random()
        if chance < ZOMBIES:
            return  # its time-out aborts it
        if chance < ZOMBIES + ABORTS:
            inner.abort()
            return
        transaction.outcome = Outcome.UNKNOWN
        inner.commit()
        self.note_commit(transaction)
