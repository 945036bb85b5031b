"""A whole node, entries to give it, and what it cost."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop

from benchmarks.measure import cpu_seconds
from trilogue.broker.names import TopicName
from trilogue.entry.entry import EntryHeader
from trilogue.entry.kafka.record_batch import BatchBuilder
from trilogue.entry.walk import read_header
from trilogue.log.partition_log import PartitionLog
from trilogue.log.segments.segment_info import FlushResult
from trilogue.node.node import Node
from trilogue.node.process import SWITCH_INTERVAL_S
from trilogue.node.settings.sources import load_settings

Figures = dict[str, float]
TIME = 1_700_000_000_000


@dataclass(frozen=True)
class Sample:
    """An entry as a producer sends it."""

    data: memoryview
    header: EntryHeader
    messages: int

    @property
    def size(self) -> int:
        return len(self.data)


def sample(size: int, messages: int = 1) -> Sample:
    """An entry of just this size, header included; its records are random text."""
    each = max(0, (size - BatchBuilder().size) // messages - 14)
    last = each
    for _ in range(4):  # the length of a length may change with it
        builder = BatchBuilder()
        for number in range(messages):
            room = last if number == messages - 1 else each
            builder.append(
                None, os.urandom(room // 2 + 1).hex().encode()[:room], (), timestamp=TIME
            )
        data = builder.build()
        if len(data) == size:
            break
        last += size - len(data)
    return Sample(memoryview(data), read_header(memoryview(data)), messages)


def settings_for(data: Path, **more: object):
    """A node's settings; names as in `tests.server`: `__` for a dot, `_` for a dash."""
    given = {
        "data": data,
        "listen.kafka": "127.0.0.1:0",
        "listen.pulsar": "off",
        "listen.tubemq-master": "off",
        "listen.tubemq-broker": "off",
        "listen.http": "off",
        "log.level": "warning",
    }
    for name, value in more.items():
        given[name.replace("__", ".").replace("_", "-")] = value
    assignments = [f"{key}={value}" for key, value in given.items()]
    return load_settings(environment={}, assignments=assignments)


@asynccontextmanager
async def node_on(data: Path, **more: object) -> AsyncIterator[Node]:
    """A node without clients: it must have a listener, which nothing connects to."""
    node = Node(settings_for(data, **more))
    await node.start()
    try:
        yield node
        if node.failure is not None:
            raise node.failure
    finally:
        await node.close()


async def make_topic(node: Node, name: str, partitions: int, **settings: str) -> list[PartitionLog]:
    """Create a topic and return its partitions' logs."""
    cluster = node.storage.broker.cluster
    new = cluster.check_create(
        TopicName("public", "default", name), partition_count=partitions, settings=settings
    )
    topic = await node.metadata_writer.write(cluster.plan_create(new))
    return [each.log for each in topic.partitions]


async def make_partitions(node: Node, count: int, name: str = "topic") -> list[PartitionLog]:
    """Create so many, in topics of at most a thousand."""
    logs: list[PartitionLog] = []
    while len(logs) < count:
        logs += await make_topic(node, f"{name}-{len(logs)}", min(1000, count - len(logs)))
    return logs


def never_flush(node: Node) -> None:
    """Let go of what a sealed file holds without writing it anywhere: the log without flushes.

    The tail is dropped and the file used again, as after a flush. Do not flush this node after.
    """
    log = node.storage.log

    def sealed(file) -> None:
        ends = {each.partition_id: each.high_watermark for each in all_partitions(node)}
        asyncio.get_running_loop().call_soon(
            lambda: log.apply_flush(FlushResult(None, ends, file.last_sequence, 0, 0, 0))
        )

    log.on_sealed = sealed


def all_partitions(node: Node) -> list[PartitionLog]:
    """The logs of all partitions there are."""
    return [node.storage.log.partition(each) for each in node.storage.meta.state.partitions]


class Cost:
    """CPU of this process and its helpers since it was made."""

    def __init__(self) -> None:
        self._began = cpu_seconds(os.getpid())

    def read(self) -> float:
        return cpu_seconds(os.getpid()) - self._began


def run(main: Callable[[], Coroutine[object, object, object]]) -> object:
    """Run a coroutine as a server would run it."""
    logging.basicConfig(level=logging.WARNING)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def elsewhere(module: str, *arguments: object) -> object:
    """Run `python -m module arguments` in a fresh process; its last line of output is JSON."""
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=600,
    )
    return json.loads(done.stdout.strip().rsplit("\n", 1)[-1])


def fresh(folder: Path) -> Path:
    """An empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def medians(legs: Iterable[Figures]) -> Figures:
    """Figure by figure."""
    gathered: dict[str, list[float]] = {}
    for leg in legs:
        for key, value in leg.items():
            gathered.setdefault(key, []).append(value)
    return {key: statistics.median(values) for key, values in gathered.items()}


def percentile(values: list[float], share: float) -> float:
    """Of a sorted list."""
    return values[min(len(values) - 1, int(len(values) * share))]


def report_line(text: str) -> None:
    """One line of progress, with the time."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)
