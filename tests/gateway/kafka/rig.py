"""A whole Kafka gateway over a real broker and log, on a fake disk and a virtual clock."""

from __future__ import annotations

import asyncio
import itertools
import struct
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any, Self

import pytest
from crc32c import crc32c

from tests.fakes import FakeFileSystem
from tests.gateway.fakes import FakeTransport
from tests.gateway.loop import InlineExecutor
from tests.waiting import run_ready_tasks, wait_on_loop
from trilogue.broker.access.acls import ANY_NAME
from trilogue.broker.access.authorizer import Operation, Principal, Resource, ResourceKind
from trilogue.broker.broker import Broker
from trilogue.broker.metadata_change import MetadataChange
from trilogue.broker.names import parse_kafka
from trilogue.broker.topics.topic import Topic
from trilogue.broker.transactions.completion import TransactionCompletion
from trilogue.broker.transactions.coordinator import TransactionCoordinator
from trilogue.broker.transactions.transaction_table import TransactionTable
from trilogue.entry.entry import Record
from trilogue.entry.kafka.record_batch import build_batch
from trilogue.gateway.kafka import apis
from trilogue.gateway.kafka.connection import KafkaConnection, KafkaGateway
from trilogue.gateway.kafka.context import KafkaSettings
from trilogue.gateway.kafka.groups.member_metadata import CLASSIC_ASSIGNMENTS, read_subscription
from trilogue.gateway.listener_security import ListenerSecurity
from trilogue.gateway.memory_budget import ConnectionMemory
from trilogue.gateway.segments.cold_reads import ColdReads
from trilogue.gateway.stream import Limits, Stream
from trilogue.log.directory import DataDirectory
from trilogue.log.jobs import flush as jobs
from trilogue.log.journal.commit import InlineCommitter
from trilogue.log.journal.journal import JournalLimits
from trilogue.log.log import Log, LogEnvironment, LogLimits
from trilogue.log.segments.segment_info import FlushJob
from trilogue.meta.memory import MemoryMeta
from trilogue.wire.kafka.api import MESSAGES
from trilogue.wire.kafka.codec.compile import decoder, encoder
from trilogue.wire.kafka.codec.header import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
)
from trilogue.wire.kafka.codec.schema import table

CLUSTER_ID = b"a cluster's id 1"
LIMITS = Limits()
LOG_LIMITS = LogLimits(
    tail_bytes=8 << 20,
    reserve_bytes=0,
    journal=JournalLimits(
        window_bytes=1 << 20, file_bytes=1 << 20, first_file_bytes=64 << 10, min_free_bytes=0
    ),
)
NOW_MS = 1_700_000_000_000


class Rules:
    """An authorizer that denies what a test names."""

    allows_all = False

    @property
    def generation(self) -> int:
        self.reads += 1
        return self.reads  # decisions are not cached

    def allowed_on_any(
        self, principal: Principal, operation: Operation, kind: ResourceKind, host: str = ""
    ) -> bool:
        return (operation, kind, ANY_NAME) not in self.denied

    def __init__(self) -> None:
        self.reads = 0
        self.denied: set[tuple[Operation, ResourceKind, str]] = set()
        self.checked_access: list[tuple[Operation, ResourceKind, str]] = []

    def deny(self, operation: Operation, kind: ResourceKind, name: str) -> None:
        self.denied.add((operation, kind, name))

    def allowed(
        self, principal: Principal, operation: Operation, resource: Resource, host: str = ""
    ) -> bool:
        requested = (operation, resource.kind, resource.name)
        self.checked_access.append(requested)
        return requested not in self.denied


class Rig:
    """What a node gives to a gateway."""

    def __init__(
        self,
        *,
        limits: Limits = LIMITS,
        log_limits: LogLimits = LOG_LIMITS,
        settings: KafkaSettings | None = None,
        memory: ConnectionMemory | None = None,
    ) -> None:
        self.limits = limits
        self.memory = memory or ConnectionMemory()
        self.fs = FakeFileSystem()
        self.now_ms = NOW_MS
        self.rules = Rules()
        self.executor = InlineExecutor()
        self.meta = MemoryMeta(CLUSTER_ID, node_id=1, node_epoch=3)
        self.commits: list[MetadataChange[Any]] = []
        self.hold_commits = False
        self._log_limits = log_limits
        self._settings = settings or KafkaSettings()
        self._stack = AsyncExitStack()
        self._random = Random(1)
        self._names = itertools.count(1)
        self._segments = itertools.count(1)
        self.open_transactions: dict[int, tuple[tuple[int, int], ...]] = {}

    async def __aenter__(self) -> Self:
        loop = self.loop = asyncio.get_running_loop()
        self.broker = Broker(
            self.meta.state,
            allocate=self.meta.allocate,
            timers=loop,
            now_ms=lambda: self.now_ms,
            new_topic_id=lambda: self._random.randbytes(16),
            new_member_suffix=lambda: f"member-{next(self._names)}",
            decode_subscription=read_subscription,
            assignment_codec=CLASSIC_ASSIGNMENTS,
        )
        self.directory = DataDirectory.open(self.fs, Path("/data"))
        around = LogEnvironment(
            fs=self.fs,
            scheduler=loop,
            background=lambda work: work(),
            committer=InlineCommitter(loop),
            now_ms=lambda: self.now_ms,
            monotonic=loop.time,
            random_bytes=self._random.randbytes,
        )
        self.log = Log.open(
            self.directory,
            self.meta.manifest(),
            around,
            node_id=1,
            node_epoch=3,
            limits=self._log_limits,
        )
        self.broker.attach(self.log, self.log.journal)
        self.gateway = self.make_gateway()
        await self._stack.enter_async_context(self.gateway)
        return self

    def make_gateway(self) -> KafkaGateway:
        return KafkaGateway(
            broker=self.broker,
            log=self.log,
            write_metadata=self.commit,
            advertised=lambda: ("broker.example", 9092),
            settings=self._settings,
            authorizer=self.rules,
            now_ms=lambda: self.now_ms,
            executor=self.executor,
            cold_reads=ColdReads(self.executor, self.memory.unsent),
        )

    async def __aexit__(self, *_problem: object) -> None:
        await self._stack.aclose()
        self.log.close()
        self.directory.close()

    async def commit(self, commit: MetadataChange[Any]) -> None:
        if self.hold_commits:
            self.commits.append(commit)
            held = self.loop.create_future()
            commit.done.then(lambda _: held.done() or held.set_result(None))
            await held
            return
        try:
            await self.meta.reserve("partition", commit.partition_ids)
            await self.meta.write(commit.ops(), commit.preconditions)
        except Exception as error:
            raise commit.abandon(error) from error
        commit.apply()

    def make_coordinator(self) -> TransactionCoordinator:
        """A coordinator that knows no transaction yet, as after a start."""
        table, broker = TransactionTable(), self.broker
        completion = TransactionCompletion(
            table,
            find_partition=broker.cluster.find_partition,
            commit_offsets=lambda _group, _moves: None,
            commit_acks=lambda _acks: None,
            timers=self.loop,
            now_ms=lambda: self.now_ms,
            branches=broker.branches,
            participant=broker.participant,
        )
        return TransactionCoordinator(
            allocate_producer_id=lambda: 99,
            now_ms=lambda: self.now_ms,
            branches=broker.branches,
            participant=broker.participant,
            table=table,
            completion=completion,
        )

    def topic(self, name: str, partitions: int = 1, **settings: str) -> Topic:
        """Create a topic without a client."""
        cluster = self.broker.cluster
        given = {key.replace("_", "."): value for key, value in settings.items()}
        plan = cluster.plan_create(
            cluster.check_create(parse_kafka(name), partition_count=partitions, settings=given)
        )
        self.meta.write_now(plan.ops(), plan.preconditions)
        return plan.apply()

    def peer(
        self, client_id: str | None = "rig", *, listener: ListenerSecurity | None = None
    ) -> Peer:
        return Peer(self, client_id, listener)

    def fail_disk(self, operation: str) -> None:
        """Let the next operation of the journal fail; its spare file is prepared before that."""
        self.log.journal._files.prepare_spare()
        self.fs.fail(operation)

    async def flush(self) -> None:
        """Seal the journal and turn it into a segment, as the node does."""
        self.log.seal()
        await settle()
        files = list(self.log.sealed)
        parts = [each for topic in self.broker.cluster for each in topic.partitions]
        segment_id = next(self._segments)
        job = FlushJob(
            journal_paths=tuple(str(file.path) for file in files),
            segment_path=str(self.directory.segments / f"{segment_id}.segment"),
            segment_id=segment_id,
            last_sequence=files[-1].last_sequence,
            flushed_through=self.log.flushed_through,
            flushed_ends={each.partition_id: each.log.flushed_end for each in parts},
            known=frozenset(each.partition_id for each in parts),
            start_offsets={},
            cluster_id=CLUSTER_ID,
            node_id=1,
            node_epoch=3,
            now_ms=self.now_ms,
            open_transactions=self.open_transactions,
        )
        result = jobs.flush(job, self.fs)
        self.open_transactions = {**self.open_transactions, **result.open_transactions}
        self.log.apply_flush(result)

    def segments(self) -> list[Path]:
        return [self.directory.segments / name for name in self.fs.listdir(self.directory.segments)]


class Peer:
    """A client of the gateway, by hand: bytes in, frames out."""

    def __init__(
        self, rig: Rig, client_id: str | None, listener: ListenerSecurity | None = None
    ) -> None:
        self.rig = rig
        self.client_id = client_id
        self.session: KafkaConnection = rig.gateway.make_connection(listener)
        self.gone: list[Stream] = []
        self.stream = Stream(
            self.session,
            rig.limits,
            call_soon=rig.loop.call_soon,
            on_gone=self.gone.append,
            memory=rig.memory,
        )
        self.transport = FakeTransport(self.stream)
        self.stream.connection_made(self.transport)
        self._requests: list[tuple[int, int, int]] = []  # key, version, correlation id
        self._numbers = itertools.count(100)
        self._read = 0

    def send(self, request: object, version: int, *, piece: int | None = None) -> None:
        """Send a request and remember how to decode its response."""
        key = table(type(request)).key
        correlation_id = next(self._numbers)
        body = bytearray()
        encode_request_header(body, RequestHeader(key, version, correlation_id, self.client_id))
        encoder(type(request), version)(request, body)
        self._requests.append((key, version, correlation_id))
        self.transport.receive(struct.pack(">i", len(body)) + bytes(body), piece)

    def sends_nothing_back(self) -> None:
        """The last request has no response (acks 0)."""
        self._requests.pop()

    @property
    def answered(self) -> int:
        """How many responses were not read yet."""
        return len(self.transport.frames()) - self._read

    def answer(self) -> Any:
        """Return the next response, decoded to its last byte, in the order of the requests."""
        frame = self.transport.frames()[self._read]
        key, version, correlation_id = self._requests[self._read]
        found, position = decode_response_header(frame, key, version)
        assert found == correlation_id, "answers are out of order"
        response, position = decoder(MESSAGES[key][1], version)(frame, position)
        assert position == len(frame), "bytes after the response"
        self._read += 1
        return response

    async def request(self, request: object, version: int) -> Any:
        """Send a request and wait for its response, for a virtual minute at most."""
        self.send(request, version)
        await self.wait()
        return self.answer()

    async def wait(self) -> None:
        await wait_on_loop(lambda: self.answered > 0 or self.transport.closed, "a response")

    @property
    def is_cut(self) -> bool:
        return self.transport.closed


async def settle() -> None:
    """Run everything that can run without time passing."""
    await run_ready_tasks(20)


def batch(*values: bytes | str, timestamp: int = NOW_MS, **how: Any) -> bytes:
    """Return a record batch as a producer sends it, one record per value."""
    records = [
        Record(at, timestamp, None, value.encode() if isinstance(value, str) else value)
        for at, value in enumerate(values)
    ]
    return build_batch(records, **how)


quick_or_not = pytest.mark.parametrize(
    ("written", "leaves"),
    [
        (batch("a", "b", "c"), False),
        (batch(*["v"] * 2_000), True),  # small, and many
        (batch("a", "b", codec=4), True),  # its decompressed size is unknown
        (batch("x" * 70_000), True),
    ],
    ids=["small", "many", "compressed", "large"],
)
"""Batches of a Kafka client, and whether their conversion runs in the executor."""


def patched(records: bytes, at: int, code: str, value: int) -> bytes:
    """Return a batch with one field of its header changed, and a matching checksum."""
    changed = bytearray(records)
    struct.pack_into(code, changed, at, value)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def versions(key: int) -> list[int]:
    """Return every served version of an API."""
    (row,) = [row for row in apis.TABLE if row.key == key]
    return list(range(row.served[0], row.served[1] + 1))
