"""A process that reads by the manifest alone, beside a node that flushes, merges and compacts."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.log_workload import LogWorkload, durable, make_topic, places, records_of
from tests.crash.world import SMALL_MERGES
from trilogue.log.jobs import merge_plan
from trilogue.log.segments.sealed import SealedLog
from trilogue.node.background import merge as merging
from trilogue.node.node import Node
from trilogue.node.settings.sources import load_settings

SECONDS, DEADLINE_S = 5, 60  # at least, at most
OFTEN = 3
SETTINGS = {
    "listen.kafka": "127.0.0.1:0",
    "listen.pulsar": "off",
    "listen.tubemq-master": "off",
    "listen.tubemq-broker": "off",
    "listen.http": "off",
    "disk.reserve": "0",
    "journal.file-size": "64KiB",
    "journal.file-age": "100ms",
    "retention.check-every": "200ms",
    "compaction.check-every": "200ms",
    "segments.grace": "0",
}


@pytest.fixture(autouse=True)
def small_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SMALL_MERGES.items():
        for module in (merge_plan, merging):
            monkeypatch.setattr(module, name, value, raising=False)


async def write(data: Path, workload: LogWorkload, seen: Callable[[], bool]) -> dict[str, int]:
    """Write for a while, and until the node did everything often enough and the reader has seen
    enough; return the counts of what the node did."""
    assignments = [f"data={data}", *(f"{key}={value}" for key, value in SETTINGS.items())]
    node = Node(load_settings(environment={}, assignments=assignments))
    await node.start()
    try:
        for name, (count, settings) in workload.topics.items():
            await make_topic(node, name, count, settings)
        clock = asyncio.get_running_loop().time
        began = clock()
        while clock() < began + SECONDS or min(work(node).values()) < OFTEN or not seen():
            assert clock() < began + DEADLINE_S, work(node)
            workload.send(node, workload.next_batch(node))
            await durable(node)
            await asyncio.sleep(0.002)  # by design: the pace of the load
        await node.drain(asyncio.Event(), DEADLINE_S)
        assert node.failure is None
        return work(node)
    finally:
        await node.close()


def work(node: Node) -> dict[str, int]:
    """How often it did what."""
    return {
        "flushes": node.flusher.counts.flushes,
        "removed files": node.retired.removed_files,
        **{kind: node.maintenance.counts[kind].jobs for kind in ("merge", "compaction")},
    }


@pytest.mark.timeout(120)
def test_a_reader_by_the_manifest_misses_nothing_and_sees_nothing_wrong(
    tmp_path: Path, report: Callable[[object], None]
) -> None:
    data, seen, stop = (tmp_path / name for name in ("data", "seen", "stop"))
    workload = LogWorkload(messages=1 << 30)
    workload.topics = {**workload.topics, "worn": (1, {"retention.ms": "1000"})}
    command = [sys.executable, "-m", "tests.crash.sealed_reader", str(data), str(seen), str(stop)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reader:
        try:
            did = asyncio.run(write(data, workload, seen.exists))
        finally:
            stop.touch()
        output, complaint = reader.communicate(timeout=DEADLINE_S)

    assert reader.returncode == 0, complaint.decode()
    counts = json.loads(output)
    report(f"{len(workload.ledger.acked)} acked; node: {did}; reader: {counts}")
    verdict = workload.judge(reads_of(data))
    assert verdict.bad == {}, verdict.examples


def reads_of(data: Path) -> dict[int, tuple[int, list[tuple[int, bytes | None]]]]:
    """Everything, once it has ended: start and messages by the ledger's number."""
    sealed = SealedLog(data)
    found = {}
    for number, (topic, partition) in enumerate(places()):
        partition_id = sealed.topic("public", "default", topic).partitions[partition]
        start, _ = sealed.range_of(partition_id)
        records = [pair for each in sealed.read(partition_id) for pair in records_of(each, start)]
        found[number] = start, records
    return found
