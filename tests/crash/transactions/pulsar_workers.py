"""Workers that run random transactions of our Pulsar client while the server is killed.

A worker writes a few messages to random partitions, mostly acks an input message with them, reads
committed ones meanwhile, and commits or aborts. Now and then it leaves a transaction open: its
time-out aborts it, and gives the input back.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time

from tests.conformance.pulsar.pulsar_admin import Admin
from tests.crash.parts import PATIENCE, LoopPart
from tests.crash.transactions.history import History, Outcome, Seen, Transaction, Write
from tests.crash.transactions.transaction_load import (
    ABORTS,
    CALL_S,
    MESSAGES_MAX,
    TRANSACTION_TIMEOUT_MS,
    decode,
    encode,
)
from trilogue.client import pulsar
from trilogue.client.errors import ClientError, ConnectionLost, TimedOut
from trilogue.client.pulsar import (
    Consumer,
    InitialPosition,
    Message,
    Producer,
    PulsarClient,
    Reader,
    SubscriptionType,
    TransactionAborted,
    TransactionState,
)
from trilogue.client.pulsar.topic_names import full_name, partition_name

INPUT, SUBSCRIPTION = "transactions-input", "workers"
ABANDONS = 0.03  # of all transactions
PAUSE_S = 0.05  # after an error


def make_client(url: str) -> PulsarClient:
    return PulsarClient(url, request_timeout_s=CALL_S)


async def subscribe(client: PulsarClient) -> Consumer:
    return await client.subscribe(
        INPUT,
        SUBSCRIPTION,
        type=SubscriptionType.SHARED,
        initial_position=InitialPosition.EARLIEST,
        queue_size=10,
    )


async def take(reader: Reader, timeout_s: float) -> list[Seen]:
    try:
        messages = await reader.receive_many(100, timeout_s)
    except TimedOut:
        return []
    return [to_seen(message) for message in messages]


def to_seen(message: Message) -> Seen:
    offset = message.id.entry_id + max(0, message.id.batch_index)
    return Seen(message.id.partition, offset, decode(message.value or b""))


class PulsarReader(LoopPart):
    """Follows the committed messages during the run."""

    def __init__(self, url: str, topic: str, history: History) -> None:
        super().__init__()
        self.url, self.topic = url, topic
        self.seen = history.readers.setdefault(f"pulsar-reader-{len(history.readers)}", [])

    async def work(self) -> None:
        async with make_client(self.url) as client:
            reader = await client.reader(self.topic)
            while not self.stopping.is_set():
                self.seen.extend(await take(reader, 0.1))


class PulsarWorker(LoopPart):
    """One client, with a producer for each partition."""

    def __init__(
        self,
        url: str,
        topic: str,
        partitions: int,
        history: History,
        lock: threading.Lock,
        *,
        number: int,
        seed: int,
    ) -> None:
        super().__init__()
        self.url, self.topic, self.partitions = url, topic, partitions
        self.history, self.lock = history, lock
        self.name = f"pulsar-{number}"
        self.random = random.Random(seed)
        self.count = self.committed = 0

    async def work(self) -> None:
        async with make_client(self.url) as client:
            producers = [
                await client.producer(
                    partition_name(full_name(self.topic), number), delivery_timeout_s=PATIENCE
                )
                for number in range(self.partitions)
            ]
            consumer, reader = await subscribe(client), await client.reader(self.topic)
            while not self.stopping.is_set():
                try:
                    await self.run_transaction(client, producers, consumer, reader)
                except ClientError:
                    await asyncio.sleep(PAUSE_S)  # by design: the server is being killed

    async def run_transaction(
        self,
        client: PulsarClient,
        producers: list[Producer],
        consumer: Consumer,
        reader: Reader,
    ) -> None:
        transaction = await client.begin_transaction(timeout_s=TRANSACTION_TIMEOUT_MS / 1_000)
        self.count += 1
        with self.lock:
            record = self.history.begin(f"{self.name}.{self.count}")
        record.outcome = Outcome.ABORTED  # until its commit is sent
        try:
            for number in range(self.random.randint(1, MESSAGES_MAX)):
                write = Write(record.name, number, self.random.randrange(self.partitions))
                record.writes.append(write)
                await producers[write.partition].submit(encode(write), transaction=transaction)
                if self.random.random() < 0.3:
                    record.reads.extend(await take(reader, 0.002))
            await self.ack_input(record, consumer, transaction)
        except ClientError:
            await transaction.abort()
            raise
        chance = self.random.random()
        if chance < ABANDONS:
            return
        if chance < ABANDONS + ABORTS:
            await transaction.abort()
        else:
            await self.commit(record, transaction)

    async def ack_input(
        self, record: Transaction, consumer: Consumer, transaction: pulsar.Transaction
    ) -> None:
        """Ack the next input message; one that could not be acked is to come again."""
        try:
            message = await consumer.receive(0.01)
        except TimedOut:
            return
        record.acks.append(int(message.value or b""))
        try:
            await consumer.ack(message, transaction=transaction)
        except ClientError:
            consumer.nack(message)
            raise

    async def commit(self, record: Transaction, transaction: pulsar.Transaction) -> None:
        """Commit, and repeat that while its end is open."""
        record.outcome = Outcome.UNKNOWN
        ends = time.monotonic() + PATIENCE
        while True:
            try:
                await transaction.commit()
            except TransactionAborted:
                record.outcome = Outcome.ABORTED
                return
            except ConnectionLost:
                if transaction.state is TransactionState.ABORTING:
                    record.outcome = Outcome.ABORTED
                    raise
                if time.monotonic() > ends:
                    raise
            else:
                record.outcome = Outcome.COMMITTED
                self.committed += 1
                return


async def write_inputs(url: str, count: int) -> None:
    """Write the input messages, in batches, and make their subscription."""
    async with make_client(url) as client:
        await subscribe(client)
        producer = await client.producer(INPUT)
        for number in range(count):
            await producer.submit(b"%d" % number)
        await producer.flush()


async def read_left(url: str, http: str) -> set[int]:
    """Return the input messages that are not acked."""
    async with make_client(url) as client:
        consumer = await subscribe(client)
        subscriptions = (await asyncio.to_thread(Admin(http).stats, INPUT))["subscriptions"]
        backlog = subscriptions[SUBSCRIPTION]["msgBacklog"]  # type: ignore[index]
        messages = [await consumer.receive(PATIENCE) for _ in range(backlog)]
        return {int(message.value or b"") for message in messages}
