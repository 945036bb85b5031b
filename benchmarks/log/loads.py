"""Ways to press a log: one entry at a time, many writers, as much as goes in, so much a second.

Every load appends as a gateway does: several entries per loop iteration, one `on_commit` for all
of them, and nothing while the log is under pressure. Latency runs from the append to the callback,
so a pause that the log requested is not in it; it is in the throughput.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from benchmarks.log.world import Cost, Figures, Sample, percentile
from trilogue.log.log import Log
from trilogue.log.partition_log import PartitionLog
from trilogue.node.node import Node

TURN_BYTES = 64 << 10  # what a connection may bring in one turn
TURN_ENTRIES = 100
CONNECTIONS = 16  # of them that always have something, in a flood
OUTSTANDING = 24 << 20  # bytes that may wait for their ack: the busy window, two more that fill
TICK_S = 0.001
MERGE_LIMIT_S = 20.0


class Load:
    """Appends one sample to many partitions by turns and notes how long acks take."""

    def __init__(self, log: Log, partitions: list[PartitionLog], sample: Sample) -> None:
        self._log = log
        self._partitions = partitions
        self._sample = sample
        self._at = 0
        self._stopping = False
        self._idle = asyncio.Event()
        self.sent = self.acked = 0
        self.took: list[float] = []

    def stop(self) -> None:
        self._stopping = True

    def restart(self) -> None:
        self._stopping = False

    async def finish(self) -> None:
        """Return when everything sent is acknowledged."""
        while self.acked < self.sent:
            self._idle.clear()
            await self._idle.wait()

    def append(self, count: int, after: Callable[[], object]) -> None:
        """Append some entries in this turn; `after` runs when they are durable."""
        data, header = self._sample.data, self._sample.header
        partitions, at = self._partitions, self._at
        room = len(partitions)
        for number in range(at, at + count):
            partitions[number % room].append(data, header)
        self._at = (at + count) % room
        self.sent += count
        began = time.perf_counter()

        def reported(error: Exception | None) -> None:
            if error is not None:
                raise error
            self.took.append(time.perf_counter() - began)
            self.acked += count
            self._idle.set()
            if not self._stopping:
                after()

        self._log.journal.on_commit(reported)

    async def feed(self, count: int, burst: int) -> None:
        """Append so many in all, some at a time, and return when they are durable."""
        while self.sent < count:
            free = asyncio.Event()
            if not self.when_free(free.set):
                await free.wait()
            self.append(min(burst, count - self.sent), lambda: None)
            await self.finish()

    def when_free(self, then: Callable[[], object]) -> bool:
        """Whether there is room; otherwise `then` runs when there is some."""
        if self._log.under_pressure:
            self._log.on_relief(then)
            return False
        return True

    def lone(self) -> None:
        """One entry in flight, always."""
        if self.when_free(self.lone):
            self.append(1, self.lone)

    def flood(self) -> None:
        """As much as goes in: connections that always have a turn's worth to send."""
        each = max(1, min(TURN_ENTRIES, TURN_BYTES // self._sample.size))
        most = max(each, OUTSTANDING // self._sample.size)
        loop = asyncio.get_running_loop()
        waiting = [False]

        def turn() -> None:
            if self._stopping:
                return
            for _ in range(CONNECTIONS):
                if self.sent - self.acked + each > most:
                    waiting[0] = True
                    return
                if not self.when_free(turn):
                    return
                self.append(each, acked)
            loop.call_soon(turn)

        def acked() -> None:
            if waiting[0]:
                waiting[0] = False
                loop.call_soon(turn)

        turn()

    def paced(self, bytes_per_second: float) -> None:
        """So much a second, in steps of a millisecond; what is late is made up for."""
        loop = asyncio.get_running_loop()
        began, begun_at = time.perf_counter(), self.sent

        def tick() -> None:
            if self._stopping:
                return
            due = (time.perf_counter() - began) * bytes_per_second / self._sample.size
            count = min(int(due) - (self.sent - begun_at), 64)
            if count > 0:
                if not self.when_free(tick):
                    return
                self.append(count, lambda: None)
            loop.call_later(TICK_S, tick)

        tick()


async def drained(node: Node) -> None:
    """Everything that was sealed is in segments (or let go)."""
    node.storage.log.seal()
    while node.storage.log.sealed or node.flusher.waiting:  # noqa: ASYNC110 -- no event for it
        await asyncio.sleep(0.02)


async def merged(node: Node) -> None:
    """What is to be merged is: the next leg must not pay for this one, nor another node's."""
    until = time.perf_counter() + MERGE_LIMIT_S
    while node.maintenance.is_hopeful and time.perf_counter() < until:
        if node.maintenance.doing:
            node.slow_helper.hurry()
        await asyncio.sleep(0.02)


async def leg(
    node: Node,
    partitions: list[PartitionLog],
    sample: Sample,
    seconds: float,
    *,
    start: Callable[[Load], object],
    probe: Sample | None = None,
) -> Figures:
    """Press for some seconds; with a probe, latency is that of a lone entry beside the load."""
    log, counts = node.storage.log, node.storage.log.journal.counts
    load = Load(log, partitions, sample)
    measured = Load(log, partitions[:1], probe) if probe else load
    commits, written = counts.commits, counts.bytes_written
    flushed = node.flusher.counts.written_bytes, node.flusher.counts.data_bytes
    cost, began = Cost(), time.perf_counter()
    start(load)
    if probe:
        measured.lone()
    await asyncio.sleep(seconds)
    load.stop()
    measured.stop()
    await load.finish()
    await measured.finish()
    took_s = time.perf_counter() - began
    cpu_s = cost.read()
    figures: Figures = {
        "entries_per_s": load.acked / took_s,
        "mb_per_s": load.acked * sample.size / took_s / 1e6,
        "cpu_us_per_entry": cpu_s / load.acked * 1e6,
        "commits_per_s": (counts.commits - commits) / took_s,
        "syncs_per_entry": (counts.commits - commits) / load.acked,
        "window_kib": (counts.bytes_written - written) / (counts.commits - commits) / 1024,
        "journal_per_byte": (counts.bytes_written - written) / (load.acked * sample.size),
    }
    took = sorted(measured.took)
    figures["p50_ms"] = percentile(took, 0.5) * 1e3
    figures["p99_ms"] = percentile(took, 0.99) * 1e3
    await drained(node)
    figures["cpu_us_per_entry_settled"] = cost.read() / load.acked * 1e6
    data = node.flusher.counts.data_bytes - flushed[1]
    if data:
        figures["flush_per_byte"] = (node.flusher.counts.written_bytes - flushed[0]) / data
    await merged(node)
    return figures
