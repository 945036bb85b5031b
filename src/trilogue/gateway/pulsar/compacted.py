"""Compaction when somebody asks for it, and what consumers of the compacted topic are spared.

`trigger` makes the view of a partition (broker/compacted.py) in the door's executor, one after the
other, and keeps its horizon at the topic. `spared` gives the ranges that a consumer's subscription
is to count as acked when it subscribes; after a restart the view is made again then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from trilogue.broker.cluster import Event
from trilogue.broker.compacted import COMPACTED, CompactedView, ViewBuilder, horizons_of
from trilogue.broker.errors import BrokerError, InUse, NotAllowed
from trilogue.broker.partition import Partition
from trilogue.broker.topic import Topic
from trilogue.entry.entry import EntryError
from trilogue.entry.walk import walk_headers
from trilogue.log.errors import LogError
from trilogue.log.partition_log import Cold, LaterAborted
from trilogue.log.segment import AbortedTransaction

if TYPE_CHECKING:
    from trilogue.gateway.pulsar.shared import Shared

log = logging.getLogger(__name__)

STEP_BYTES: Final = 1 << 20
NOT_RUN, RUNNING, SUCCESS, ERROR = "NOT_RUN", "RUNNING", "SUCCESS", "ERROR"


class Compacted:
    """The views of this door's partitions, and how making the last one went."""

    def __init__(self, door: Shared) -> None:
        self._door = door
        self._views: dict[int, CompactedView] = {}
        self._running: set[int] = set()
        self._problems: dict[int, str] = {}
        self._one_by_one = asyncio.Lock()
        door.broker.cluster.listeners.append(self._topic_changed)

    def status(self, topic: Topic, index: int) -> tuple[str, str]:
        """How compaction of a partition stands, and what was wrong."""
        partition_id = topic.row.partitions[index]
        if partition_id in self._running:
            return RUNNING, ""
        if partition_id in self._problems:
            return ERROR, self._problems[partition_id]
        return (SUCCESS if index in horizons_of(topic.settings) else NOT_RUN), ""

    def trigger(self, topic: Topic, index: int) -> None:
        """Begin to compact a partition; InUse while that is under way."""
        partition_id = topic.row.partitions[index]
        if partition_id in self._running:
            raise InUse("Compaction already in progress")
        self._running.add(partition_id)
        self._problems.pop(partition_id, None)
        self._door.spawn(self._compact(topic, index))

    async def spared(
        self, topic: Topic, partition: Partition, *, wanted: bool = True
    ) -> Iterable[tuple[int, int]]:
        """The offsets that who reads the compacted topic does not get, as ranges in order."""
        if not wanted:
            return ()
        index = topic.partitions.index(partition)
        horizon = horizons_of(topic.settings).get(index)
        if horizon is None:
            return ()
        view = self._views.get(partition.partition_id)
        if view is None or view.horizon != horizon:
            try:
                async with self._one_by_one:
                    view = await self._made(partition, horizon)
            except (LogError, EntryError) as problem:
                raise NotAllowed(f"the compacted topic cannot be read: {problem}") from problem
            self._views[partition.partition_id] = view
        return view.removed()

    def _topic_changed(self, event: Event, topic: Topic) -> None:
        """Let go of what is known of partitions that were deleted."""
        for each in topic.row.partitions if event is Event.DELETED else ():
            self._views.pop(each, None)
            self._problems.pop(each, None)

    async def _compact(self, topic: Topic, index: int) -> None:
        partition = topic.partitions[index]
        partition_id = partition.partition_id
        try:
            async with self._one_by_one:
                view = await self._made(partition, partition.log.stable_end)
            await self._keep(topic, index, view.horizon)
            self._views[partition_id] = view
            log.info("topic.compacted", extra={"partition": partition_id, "ranges": len(view)})
        except (BrokerError, LogError, EntryError, OSError) as problem:
            self._problems[partition_id] = str(problem)
            log.warning(
                "topic.not_compacted", extra={"partition": partition_id, "reason": str(problem)}
            )
        finally:
            self._running.discard(partition_id)

    async def _made(self, partition: Partition, horizon: int) -> CompactedView:
        """Walk everything below the horizon; what is decompressed is so in the executor."""
        door, plog = self._door, partition.log
        offset = plog.start_offset
        builder = ViewBuilder(offset, horizon)
        while offset < horizon and not partition.deleted:
            offset = max(offset, plog.start_offset)
            found = plog.read(offset, STEP_BYTES, until=plog.stable_end)
            aborted = plog.aborted(offset, plog.stable_end)
            if isinstance(found, Cold):
                entries = await door.loop.run_in_executor(door.executor, found.run)
            else:
                entries = memoryview(b"".join(found.slices))
            if entries.nbytes == 0:
                if not isinstance(found, Cold):
                    break
                offset = found.next_offset
                continue
            end = _end_of(entries)

            def add(
                entries: memoryview = entries,
                aborted: list[AbortedTransaction] | LaterAborted = aborted,
                end: int = end,
            ) -> None:
                found = aborted.run(end) if isinstance(aborted, LaterAborted) else aborted
                builder.add(entries, found)

            await door.loop.run_in_executor(door.executor, add)
            offset = end
        return builder.view()

    async def _keep(self, topic: Topic, index: int, horizon: int) -> None:
        """Keep how far a partition was compacted at the topic's row."""
        door, cluster = self._door, self._door.broker.cluster
        while (pending := cluster.altering(topic.name)) is not None:
            await door.kept(pending)
        now = cluster.topic(topic.name)
        horizons = {**horizons_of(now.settings), index: horizon}
        text = msgspec.json.encode(horizons).decode()
        await door.commit(cluster.plan_alter(now.name, {**now.settings, COMPACTED: text}))


def _end_of(entries: memoryview) -> int:
    _, _, base, last_offset_delta, *_ = walk_headers(entries)[-1]
    return base + last_offset_delta + 1
