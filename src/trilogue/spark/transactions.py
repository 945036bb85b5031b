"""Exactly once: each task attempt writes in a transaction, and the driver commits a whole batch.

The transactions of all tasks commit in one decision of the server, which keeps the application and
the number of its last batch. A batch that runs again, after a driver that ended at any moment, is
either not committed and is written again, or is committed and is not written again. Attempts that
Spark does not count are fenced by the driver, so that readers of committed messages do not wait for
their transactions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from trilogue.client.errors import ClientError, ServerRefused
from trilogue.client.kafka.model import PreparedTransaction
from trilogue.client.kafka.producer.transactional_writer import TransactionalWriter, fence_producer
from trilogue.spark.errors import NotStored, OptionError
from trilogue.spark.link import Link, link
from trilogue.spark.write_options import WriteOptions
from trilogue.wire.kafka.errors import ErrorCode

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties that Spark gives to the tasks of a micro-batch."""
CANDIDATES = 128
"""How many ids are tried for one that the application's coordinator has."""


class BatchName(NamedTuple):
    """A batch of an application, as the server keeps it."""

    application_id: str
    batch_id: int


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    """What one task stored. `transaction`: not committed yet; None where it has no rows."""

    rows: int
    batches: int
    application_id: str | None = None
    transaction: PreparedTransaction | None = None


def check_server(options: WriteOptions) -> None:
    """Raise OptionError if the server cannot commit the transactions of all tasks in one decision.

    Tasks would otherwise commit one after the other, and a driver that ends between two of them
    would leave half of a batch.
    """
    if not link(options).can_commit_batches():
        raise OptionError(
            f"deliveryGuarantee=exactly-once: the server at {options.servers} cannot commit "
            "several transactions in one decision, as Trilogue can; use at-least-once there"
        )


def name_micro_batch(options: WriteOptions) -> BatchName:
    """Return the micro-batch of this task, by the query id that its checkpoint keeps."""
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(QUERY_ID)
    batch = None if context is None else context.getLocalProperty(BATCH_ID)
    if query is None or batch is None:
        raise OptionError(
            "this Spark does not name the query and batch to its tasks, which "
            "deliveryGuarantee=exactly-once needs: use at-least-once"
        )
    return BatchName(options.application_id or f"spark-{query}", int(batch))


def _transactional_id(at: Link, application_id: str) -> str:
    """Return the id of this attempt. The same ones come again in each batch: their number is small.

    Two attempts of a task that run at once have two numbers. An attempt of an earlier driver that
    has the same number is fenced, and its transaction aborted. One node coordinates all ids of
    an application: an id that another node would have gets one more number.
    """
    context = TaskContext.get()
    task, attempt = (0, 0) if context is None else (context.partitionId(), context.attemptNumber())
    name = f"{application_id}-{task}-{attempt}"
    found = at.coordinators([application_id, name])
    if found[name] == found[application_id]:
        return name
    others = at.coordinators(f"{name}.{number}" for number in range(1, CANDIDATES))
    for other, node in others.items():
        if node == found[application_id]:
            return other
    return name  # the server refuses it, and says why


def is_committed(at: Link, batch: BatchName) -> bool:
    """Whether this batch or a later one of the application is committed."""
    last = at.run(at.admin.last_batch(batch.application_id))
    return last is not None and last.batch_id >= batch.batch_id


def begin_transaction(at: Link, options: WriteOptions, batch: BatchName) -> TransactionalWriter:
    """Return the begun transaction of this task attempt."""
    writer = TransactionalWriter(
        at.cluster,
        _transactional_id(at, batch.application_id),
        timeout_s=options.transaction_timeout_s,
    )
    try:
        at.run(writer.begin())
    except ServerRefused as refused:
        if refused.code != ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise
        raise OptionError(
            "option 'transactionTimeout': the server allows less than "
            f"{options.transaction_timeout_s:g} s (transaction.max.timeout.ms); take less or raise "
            "that"
        ) from refused
    return writer


def commit_batch(
    options: WriteOptions, messages: Sequence[WriterCommitMessage | None], batch_id: int
) -> None:
    """Commit the transactions of all tasks in one decision, once; NotStored if that is refused."""
    commits = [each for each in messages if isinstance(each, TaskCommit)]
    names = {each.application_id for each in commits if each.application_id is not None}
    if not names:
        return
    (name,) = names
    at = link(options)
    prepared = [each.transaction for each in commits if each.transaction is not None]
    try:
        last = at.run(
            at.admin.commit_transactions(prepared, application_id=name, batch_id=batch_id)
        )
    except ServerRefused as refused:
        _abort(at, prepared)
        raise NotStored(
            f"batch {batch_id} of {name} is not committed, and nothing of it is visible: run it "
            f"again ({refused}). A transaction that lasts longer than option transactionTimeout is "
            "aborted by the server."
        ) from refused
    if last.batch_id == batch_id:  # else a later driver is at work
        _fence_open(at, name)


def abort_batch(
    options: WriteOptions,
    messages: Iterable[WriterCommitMessage | None],
    application_id: str | None = None,
) -> None:
    """Abort the transactions of tasks that ended, and with `application_id` those of all tasks.

    What remains is aborted when the batch runs again, or by its time-out.
    """
    at = link(options)
    _abort(at, (each.transaction for each in messages if isinstance(each, TaskCommit)))
    if application_id is not None:
        with suppress(ClientError):
            _fence_open(at, application_id)


def _abort(at: Link, transactions: Iterable[PreparedTransaction | None]) -> None:
    for each in transactions:
        if each is not None:
            with suppress(ClientError):
                at.run(at.admin.end_transaction(each, commit=False))


def _fence_open(at: Link, application_id: str) -> None:
    """Abort the transactions of attempts that were killed, or that lost against another attempt."""
    pattern = re.escape(application_id) + r"-\d+-\d+(\.\d+)?"
    for each in at.run(at.admin.list_transactions(states=["Ongoing"], pattern=pattern)):
        at.run(fence_producer(at.cluster, each.name))
