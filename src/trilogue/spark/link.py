"""A blocking interface to a cluster for Spark's threads: one per process and connection options.

Spark reuses its Python workers, so connections outlive a task. A forked worker must not use its
parent's sockets: the cache is keyed by process id.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
from collections.abc import Coroutine, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from trilogue.client.errors import ClientError, ConnectionLost, ServerRefused
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.consumer.batch_reader import BatchReader
from trilogue.client.kafka.errors import KafkaError
from trilogue.client.kafka.model import EARLIEST, LATEST, READ_COMMITTED, granted
from trilogue.client.kafka.security import Security
from trilogue.client.retry import retry
from trilogue.spark.errors import OptionError
from trilogue.spark.offsets import CountedOffsets, Ids, Offsets, Partition, select_assigned
from trilogue.spark.read_options import ReadOptions
from trilogue.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from trilogue.client.kafka.admin import Admin
    from trilogue.client.kafka.producer.batch_writer import BatchWriter
    from trilogue.spark.write_options import WriteOptions

T = TypeVar("T")
FIRST_CONTACT_S = 8.0
"""A server that was never reached is reported after this time: its address may be wrong."""
REQUEST_S = 30.0
"""A server that was reached may be away for this time, for a restart."""
MISSING_TOPIC = (
    "there is no such topic: check its name, make it (trilogue topics create), or name topics that "
    "may come later by subscribePattern"
)


class Link(CountedOffsets):
    """A cluster, its readers and writers, and the event loop that runs them."""

    def __init__(self, servers: str, security: Security, isolation: int = READ_COMMITTED) -> None:
        self.loop = asyncio.new_event_loop()
        self.cluster = KafkaCluster(
            servers, client_id="trilogue-spark", timeout_s=FIRST_CONTACT_S, security=security
        )
        self.consumer = BatchReader(self.cluster, isolation=isolation)

    @cached_property
    def producer(self) -> BatchWriter:
        """Writes batches; tasks that read need none."""
        from trilogue.client.kafka.producer.batch_writer import BatchWriter

        return BatchWriter(self.cluster)

    @cached_property
    def admin(self) -> Admin:
        """Administrative requests; most tasks need none."""
        from trilogue.client.kafka.admin import Admin

        return Admin(self.cluster)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result."""
        result = self.loop.run_until_complete(work)
        self.cluster.timeout_s = REQUEST_S
        return result

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a coroutine, so that its request is sent, and return its task."""
        task = self.loop.create_task(work)
        self.loop.run_until_complete(asyncio.sleep(0))
        return task

    def wait(self, task: asyncio.Task[T]) -> T:
        """Wait for a task of `start` and return its result."""
        return self.loop.run_until_complete(task)

    def drop(self, task: asyncio.Task[T]) -> None:
        """Cancel a task of `start`."""
        task.cancel()
        self.loop.run_until_complete(asyncio.wait([task]))
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not warn about it

    def find_servers(self) -> None:
        """Return when a server has answered; ServerUnreachable."""
        self.run(self.cluster.refresh([], needed_leaders=()))

    def can_commit_batches(self) -> bool:
        """Whether the server commits several transactions in one decision."""
        from trilogue.wire.kafka.codec.schema import table
        from trilogue.wire.kafka.transactions.commit_transactions import CommitTransactionsRequest

        connection = self.run(self.cluster.any_connection())
        return table(CommitTransactionsRequest).key in connection.served

    def coordinators(self, names: Iterable[str]) -> dict[str, int]:
        """Return the id of the node that coordinates each transactional id."""
        return self.run(self._coordinators(list(names)))

    async def _coordinators(self, names: list[str]) -> dict[str, int]:
        from trilogue.client.kafka.coordinators import TRANSACTION, Coordinators

        async def find() -> dict[str, int]:
            coordinators = Coordinators(self.cluster, TRANSACTION)
            found = granted(await coordinators.find_coordinators(names))
            return {name: node.id for name, node in found.items()}

        return await retry(
            find,
            about="coordinators of transactions",
            server=self.cluster.servers,
            total_s=REQUEST_S,
            may_pass=_may_pass,
        )

    def partitions(self, options: ReadOptions) -> list[Partition]:
        """Return every partition that the options subscribe to now."""
        return self.run(self._partitions(options))

    async def _partitions(self, options: ReadOptions) -> list[Partition]:
        topics = list(options.topics if options.assign is None else options.assign)
        if options.pattern is not None:
            names = await self.cluster.topic_names()
            topics = [name for name in names if re.fullmatch(options.pattern, name)]
        try:
            await self.cluster.refresh(topics, needed_leaders=())
        except KafkaError as refused:
            if refused.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            raise KafkaError(refused.code, refused.about, advice=MISSING_TOPIC) from None
        there = sorted(
            (topic, number) for topic in topics for number in self.cluster.topics[topic].epochs
        )
        return there if options.assign is None else select_assigned(options.assign, there)

    def ids(self, partitions: Iterable[Partition]) -> Ids:
        """Return the ids of the topics of `partitions`, if the server sends ids."""
        found = {topic: self.cluster.topics[topic].topic_id for topic, _ in partitions}
        return {topic: one.hex() for topic, one in found.items() if any(one)}

    def at_times(self, times: Mapping[Partition, int]) -> Offsets:
        """Return the first offset at or after a time (ms) in each partition; -1 if none."""
        return self.run(self.consumer.offsets(times)) if times else {}

    def mean_sizes(self, latest: Mapping[Partition, int]) -> dict[Partition, float]:
        """Return the bytes that an offset of each partition takes on disk, on average."""
        first = self.resolve(dict.fromkeys(latest, EARLIEST))
        try:
            nodes = self.run(self.admin.log_dirs(latest))
        except ServerRefused as refused:
            raise OptionError(
                f"option 'maxBytesPerTrigger' needs the sizes of partitions ({refused}): allow "
                "DESCRIBE on the cluster, or use maxOffsetsPerTrigger"
            ) from refused
        sizes: dict[Partition, float] = {}
        for found in itertools.chain.from_iterable(nodes.values()):
            if isinstance(found, KafkaError):
                continue
            for (topic, number), replica in found.partitions.items():
                length = latest.get((topic, number), 0) - first.get((topic, number), 0)
                if length > 0:
                    sizes[topic, number] = replica.size_bytes / length
        return sizes

    def publish_positions(self, group: str, offsets: Offsets) -> None:
        """Commit offsets for a group; OptionError if the group refuses them."""
        try:
            outcomes = self.run(self.admin.alter_group_offsets(group, offsets))
        except ServerRefused as refused:
            raise _group_error(group, refused) from refused
        for problem in outcomes.values():
            if problem is not None and not problem.retriable:
                raise _group_error(group, problem)

    def resolve(self, wanted: Mapping[Partition, int]) -> Offsets:
        """Replace -1 (latest) and -2 (earliest) by offsets; others are unchanged."""
        unresolved = {key: offset for key, offset in wanted.items() if offset in {EARLIEST, LATEST}}
        found = self.run(self.consumer.offsets(unresolved)) if unresolved else {}
        return {key: found.get(key, offset) for key, offset in wanted.items()}


def _may_pass(problem: ClientError) -> bool:
    return isinstance(problem, ConnectionLost) or (
        isinstance(problem, ServerRefused) and problem.retriable
    )


def _group_error(group: str, problem: ServerRefused) -> OptionError:
    return OptionError(
        f"option 'kafka.group.id': group {group} takes no positions of a query ({problem}); "
        "a group without members is needed, and the right to commit for it"
    )


_links: dict[tuple[int, str, Security, int], Link] = {}


def link(options: ReadOptions | WriteOptions) -> Link:
    """Return this process's link to the servers of the options, with their login."""
    key = (os.getpid(), options.servers, options.security, options.isolation)
    if key not in _links:
        _links[key] = Link(options.servers, options.security, options.isolation)
    return _links[key]
