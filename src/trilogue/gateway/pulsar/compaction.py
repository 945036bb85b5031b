"""Compaction of a topic on request, and what its compacted topic leaves out.

`trigger` builds the view of a partition (broker/topics/compacted_view.py) in the gateway's
executor, one partition at a time, and stores its horizon with the topic. `find_removed` returns the
ranges that a subscription counts as acked when a consumer with `readCompacted` subscribes; after a
restart the view is built again then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

import msgspec

from trilogue.broker.errors import BrokerError, InUse, NotAllowed
from trilogue.broker.topics.cluster import TopicEvent
from trilogue.broker.topics.compacted_view import (
    COMPACTED,
    CompactedView,
    CompactedViewBuilder,
    compacted_horizons,
)
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.topic import Topic
from trilogue.entry.entry import EntryError
from trilogue.gateway.partition_reader import Aborted, entries_end, open_read, resolve_aborted
from trilogue.gateway.pulsar.services import PulsarServices
from trilogue.log.errors import LogError
from trilogue.log.partition_log import SegmentSlice

log = logging.getLogger(__name__)

STEP_BYTES: Final = 1 << 20
NOT_RUN, RUNNING, SUCCESS, ERROR = "NOT_RUN", "RUNNING", "SUCCESS", "ERROR"


class CompactionRecord(msgspec.Struct):
    """The last compactions of a partition since the start; times in ms, 0 if there was none."""

    removed_count: int = 0  # messages that the last one left out
    succeeded_ms: int = 0
    failed_ms: int = 0
    duration_ms: int = 0


NO_COMPACTION: Final = CompactionRecord()


class CompactedTopics:
    """The compacted views of a gateway's partitions, and the state of their compactions."""

    def __init__(self, gateway: PulsarServices) -> None:
        self._gateway = gateway
        self._views: dict[int, CompactedView] = {}
        self._running: set[int] = set()
        self._problems: dict[int, str] = {}
        self._records: dict[int, CompactionRecord] = {}
        self._one_by_one = asyncio.Lock()
        gateway.broker.cluster.listeners.append(self._topic_changed)

    def status(self, topic: Topic, index: int) -> tuple[str, str]:
        """Return the state of a partition's compaction, and the problem if it failed."""
        partition_id = topic.row.partitions[index]
        if partition_id in self._running:
            return RUNNING, ""
        if partition_id in self._problems:
            return ERROR, self._problems[partition_id]
        return (SUCCESS if index in compacted_horizons(topic.settings) else NOT_RUN), ""

    def last_compaction(self, partition_id: int) -> CompactionRecord:
        """Return what is known of the last compactions of a partition."""
        return self._records.get(partition_id, NO_COMPACTION)

    def trigger(self, topic: Topic, index: int) -> None:
        """Begin to compact a partition; raises InUse while that is under way."""
        partition_id = topic.row.partitions[index]
        if partition_id in self._running:
            raise InUse("Compaction already in progress")
        self._running.add(partition_id)
        self._problems.pop(partition_id, None)
        self._gateway.spawn(self._compact(topic, index))

    async def find_removed(self, topic: Topic, partition: Partition) -> Iterable[tuple[int, int]]:
        """Return the offsets that the compacted topic leaves out, as ranges in order.

        There are none before its first compaction. Raises NotAllowed where it cannot be read.
        """
        index = topic.partitions.index(partition)
        horizon = compacted_horizons(topic.settings).get(index)
        if horizon is None:
            return ()
        view = self._views.get(partition.partition_id)
        if view is None or view.horizon != horizon:
            try:
                async with self._one_by_one:
                    view = await self._build_view(partition, horizon)
            except (LogError, EntryError) as problem:
                raise NotAllowed(f"the compacted topic cannot be read: {problem}") from problem
            self._views[partition.partition_id] = view
        return view.removed()

    def _topic_changed(self, event: TopicEvent, topic: Topic) -> None:
        """Forget partitions that were deleted."""
        for each in topic.row.partitions if event is TopicEvent.DELETED else ():
            self.forget_partition(each)

    def forget_partition(self, partition_id: int) -> None:
        """Forget a partition that is no more, or another node's."""
        self._views.pop(partition_id, None)
        self._problems.pop(partition_id, None)
        self._records.pop(partition_id, None)

    async def _compact(self, topic: Topic, index: int) -> None:
        partition = topic.partitions[index]
        partition_id = partition.partition_id
        record = self._records.setdefault(partition_id, CompactionRecord())
        began_ms = self._gateway.now_ms()
        try:
            async with self._one_by_one:
                began_ms = self._gateway.now_ms()
                view = await self._build_view(partition, partition.log.stable_end)
            await self._store_horizon(topic, index, view.horizon)
            before, self._views[partition_id] = self._views.get(partition_id), view
            record.succeeded_ms = self._gateway.now_ms()
            record.removed_count = max(0, _removed_count(view) - _removed_count(before))
            log.info("topic.compacted", extra={"partition": partition_id, "ranges": len(view)})
        except (BrokerError, LogError, EntryError, OSError) as problem:
            self._problems[partition_id] = str(problem)
            record.failed_ms = self._gateway.now_ms()
            log.warning(
                "topic.not_compacted", extra={"partition": partition_id, "reason": str(problem)}
            )
        finally:
            record.duration_ms = self._gateway.now_ms() - began_ms
            self._running.discard(partition_id)

    async def _build_view(self, partition: Partition, horizon: int) -> CompactedView:
        """Walk all entries below the horizon; they are read and decompressed in the executor."""
        gateway, plog = self._gateway, partition.log
        offset = plog.start_offset
        builder = CompactedViewBuilder(offset, horizon)
        while offset < horizon and not partition.deleted:
            offset = max(offset, plog.start_offset)
            read = open_read(plog, offset, STEP_BYTES)
            aborted = read.find_aborted(plog)
            if isinstance(read.source, SegmentSlice):
                parts = await gateway.loop.run_in_executor(gateway.executor, read.load)
            else:
                parts = read.load()
            entries = memoryview(parts[0] if len(parts) == 1 else b"".join(parts))
            if entries.nbytes == 0:
                if not isinstance(read.source, SegmentSlice):
                    break
                offset = read.source.next_offset
                continue
            end = entries_end(entries)

            def add(
                entries: memoryview = entries, aborted: Aborted = aborted, end: int = end
            ) -> None:
                builder.add(entries, resolve_aborted(aborted, end))

            await gateway.loop.run_in_executor(gateway.executor, add)
            offset = end
        return builder.view()

    async def _store_horizon(self, topic: Topic, index: int, horizon: int) -> None:
        """Store how far a partition was compacted with the topic's settings."""
        gateway, cluster = self._gateway, self._gateway.broker.cluster
        while (pending := cluster.pending_change(topic.name)) is not None:
            await gateway.wait_for(pending)
        now = cluster.topic(topic.name)
        horizons = {**compacted_horizons(now.settings), index: horizon}
        text = msgspec.json.encode(horizons).decode()
        await gateway.write_metadata(
            cluster.plan_alter(now.name, {**now.settings, COMPACTED: text})
        )


def _removed_count(view: CompactedView | None) -> int:
    return 0 if view is None else sum(end - start for start, end in view.removed())
