"""Commits of several transactions in one decision, as the next batch of an application.

An application writes a batch from many producers, such as the tasks of a Spark query: each leaves
its transaction open, and the driver commits all of them. The decision is one fact of the journal,
so after a crash either all of them commit or none does. The application's last batch is part of
the decision: a commit that is repeated, by a driver that does not know its outcome or by an earlier
driver that still runs, changes nothing and returns the last batch.

    BATCH_COMMITTED  u8 version 1 | u16 length, application id | i64 batch id | i64 committed_ms |
                     u32 count | count x (u32 length, TRANSACTION_SAVED without content)

At the flush cut each application that changed has one row, key "b" | application id, value
BATCH_COMMITTED without transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from trilogue.broker.errors import InvalidRequest, StorageFailed, TooManyTransactions
from trilogue.broker.facts import BATCH_KEY, VERSION, ByteReader, FactKind, SnapshotRow
from trilogue.broker.promise import Promise
from trilogue.broker.transactions.coordinator import (
    NAME_BYTES_MAX,
    ProducerIdentity,
    TransactionCoordinator,
)
from trilogue.broker.transactions.records import TransactionRow, encode_saved
from trilogue.broker.transactions.transaction_table import NO_CONTENT
from trilogue.log.journal.frame import MAX_FACT

_HEAD: Final = Struct(">BH")
_BATCH: Final = Struct(">qqI")
_SIZE: Final = Struct(">I")


class CommittedBatch(NamedTuple):
    """The last batch that an application has committed."""

    application_id: str
    batch_id: int
    committed_ms: int


class BatchOutcome(NamedTuple):
    """The last batch of an application; `is_repeated`: the request committed nothing."""

    batch: CommittedBatch
    is_repeated: bool


class OpenTransaction(NamedTuple):
    """A transaction that its producer has left open, by transactional id and identity."""

    transactional_id: str
    identity: ProducerIdentity


class BatchCommits:
    """The last committed batch of each application."""

    def __init__(self, coordinator: TransactionCoordinator, now_ms: Callable[[], int]) -> None:
        self._coordinator = coordinator
        self._now_ms = now_ms
        self._batches: dict[str, CommittedBatch] = {}
        self._durable: dict[str, CommittedBatch] = {}
        self._dirty: dict[str, None] = {}

    def find_last(self, application_id: str) -> CommittedBatch | None:
        """Return the last batch of an application, as far as it is durable; None if unknown.

        Raises NotCoordinator.
        """
        self._coordinator.check_coordinator(application_id)
        return self._durable.get(application_id)

    def commit(
        self, application_id: str, batch_id: int, transactions: Sequence[OpenTransaction]
    ) -> Promise[BatchOutcome]:
        """Commit all of them, or none; the promise has the application's last batch when durable.

        Of a batch that is not above the last one nothing is committed. Raises NotCoordinator,
        InvalidRequest, TooManyTransactions, UnknownProducerMapping, ProducerFenced,
        InvalidTransactionState, ConcurrentTransactions.
        """
        self._coordinator.check_coordinator(application_id)
        last = self._batches.get(application_id)
        if last is not None and batch_id <= last.batch_id:
            return self._when_durable(BatchOutcome(last, is_repeated=True))
        self._check(application_id, batch_id, last is None)
        if len({each.transactional_id for each in transactions}) != len(transactions):
            raise InvalidRequest("a transactional id is named twice")
        coordinator = self._coordinator
        for each in transactions:
            if not coordinator.coordinates(each.transactional_id):
                raise InvalidRequest("the ids of one decision have one coordinator")
        found = [coordinator.check_ongoing(*each) for each in transactions]
        rows = [coordinator.prepare_commit(each.row) for each in found]
        batch = CommittedBatch(application_id, batch_id, self._now_ms())
        payload = encode_batch(batch, rows)
        if len(payload) > MAX_FACT:
            raise InvalidRequest(f"{len(rows)} transactions are too many for one decision")
        coordinator.table.add_fact(FactKind.BATCH_COMMITTED, payload)
        self._save(batch)
        endings = [
            coordinator.carry_out(transaction, row, (row.producer_id, row.epoch))
            for transaction, row in zip(found, rows, strict=True)
        ]
        outcome = BatchOutcome(batch, is_repeated=False)
        return _await_all(endings, outcome) if endings else self._when_durable(outcome)

    def _check(self, application_id: str, batch_id: int, is_new: bool) -> None:
        if not application_id or len(application_id.encode()) > NAME_BYTES_MAX:
            raise InvalidRequest(f"an application id has 1 to {NAME_BYTES_MAX} bytes")
        if batch_id < 0:
            raise InvalidRequest("a batch id is 0 or more")
        most = self._coordinator.limits.ids_max
        if is_new and len(self._batches) >= most:
            raise TooManyTransactions(f"there may be {most} applications")

    def forget_expired(self) -> int:
        """Forget applications that have committed nothing for long; return how many."""
        before_ms = self._now_ms() - self._coordinator.limits.expiration_ms
        expired = [name for name, each in self._durable.items() if each.committed_ms < before_ms]
        for name in expired:
            del self._durable[name], self._batches[name]
            self._dirty[name] = None
        return len(expired)

    def release(self, gives_name: Callable[[str], bool]) -> None:
        """Forget the applications of ids that another node coordinates now; their rows stay."""
        for name in list(filter(gives_name, self._batches)):
            del self._batches[name]
            self._durable.pop(name, None)

    def _save(self, batch: CommittedBatch) -> None:
        self._batches[batch.application_id] = batch

        def committed(problem: BaseException | None) -> None:
            if problem is None:
                self._keep(batch)

        self._coordinator.table.on_commit(committed)

    def _keep(self, batch: CommittedBatch) -> None:
        self._durable[batch.application_id] = batch
        self._dirty[batch.application_id] = None

    def _when_durable(self, outcome: BatchOutcome) -> Promise[BatchOutcome]:
        promise: Promise[BatchOutcome] = Promise()

        def committed(problem: BaseException | None) -> None:
            if problem is None:
                promise.set_result(outcome)
            else:
                promise.set_error(StorageFailed(str(problem)))

        self._coordinator.table.on_commit(committed)
        return promise

    # -- the flush cut and the start

    def snapshot(self) -> list[SnapshotRow]:
        """Return the rows that changed since the last call, as far as they are durable."""
        dirty, self._dirty = self._dirty, {}
        return [
            SnapshotRow(
                BATCH_KEY + name.encode(),
                encode_batch(self._durable[name], ()) if name in self._durable else None,
            )
            for name in dirty
        ]

    def load(self, payload: bytes) -> None:
        """Take over a snapshot row."""
        batch, _ = decode_batch(payload)
        self._batches[batch.application_id] = self._durable[batch.application_id] = batch

    def replay(self, payload: bytes) -> None:
        """Take over a decision found in the journal at start; the coordinator carries it out."""
        batch, rows = decode_batch(payload)
        for row in rows:
            self._coordinator.table.replay(FactKind.TRANSACTION_SAVED, row)
        self._batches[batch.application_id] = batch
        self._keep(batch)


def encode_batch(batch: CommittedBatch, rows: Sequence[TransactionRow]) -> bytes:
    """Encode a BATCH_COMMITTED."""
    name = batch.application_id.encode()
    parts = [_HEAD.pack(VERSION, len(name)), name]
    parts.append(_BATCH.pack(batch.batch_id, batch.committed_ms, len(rows)))
    for row in rows:
        payload = encode_saved(row, NO_CONTENT)
        parts += (_SIZE.pack(len(payload)), payload)
    return b"".join(parts)


def decode_batch(payload: bytes) -> tuple[CommittedBatch, list[bytes]]:
    """Decode a BATCH_COMMITTED: the batch and a TRANSACTION_SAVED of each; CorruptLog."""
    with ByteReader("BATCH_COMMITTED", payload) as reader:
        version, size = reader.read_struct(_HEAD)
        reader.check_version(version)
        name = reader.read_text(size)
        batch_id, committed_ms, count = reader.read_struct(_BATCH)
        rows = [reader.read_bytes(reader.read_struct(_SIZE)[0]) for _ in range(count)]
        return CommittedBatch(name, batch_id, committed_ms), rows


def _await_all(
    endings: Sequence[Promise[ProducerIdentity]], outcome: BatchOutcome
) -> Promise[BatchOutcome]:
    """Return a promise of the outcome that is settled when all have ended, or one has failed."""
    promise: Promise[BatchOutcome] = Promise()
    left = len(endings)

    def settle(ended: Promise[ProducerIdentity]) -> None:
        nonlocal left
        left -= 1
        if promise.done:
            return
        if ended.error is not None:
            promise.set_error(ended.error)
        elif not left:
            promise.set_result(outcome)

    for each in endings:
        each.then(settle)
    return promise
