"""A disk of 512 MiB that runs full under a node that flushes and merges: no socket, no protocol.

What was acked stays, reading goes on, appending is refused and not lost; when there is room again
all of it goes on by itself, and a start finds the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.crash.faults import small_disk
from tests.crash.log_workload import (
    LogWorkload,
    Sent,
    durable,
    make_topic,
    partition_of,
    places,
    read,
)
from tests.waiting import wait_on_loop
from trilogue.broker.errors import BrokerError
from trilogue.broker.errors import DiskFull as Refused
from trilogue.log.jobs import merge_plan
from trilogue.node.background import merge as merging
from trilogue.node.node import Node
from trilogue.node.settings.sources import load_settings

SIZE_MIB = 512
BALLAST = 256 << 20  # something else that takes room, and goes
DEADLINE_S = 120
SETTINGS = {
    "listen.kafka": "127.0.0.1:0",
    "listen.pulsar": "off",
    "listen.tubemq-master": "off",
    "listen.tubemq-broker": "off",
    "listen.http": "off",
    "journal.file-size": "2MiB",
    "disk.reserve": "16MiB",
    "segments.grace": "0",
    "retention.check-every": "200ms",
    "flush.rate": "0",
    "merge.rate": "0",
}
PATIENCE_S = 60.0

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def merges_are_due_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that small ones go on while the disk fills."""
    for name, value in {"FIRST_LEVEL_MIN": 2, "FIRST_LEVEL_DUE": 3, "FIRST_LEVEL_MAX": 5}.items():
        for module in (merge_plan, merging):
            monkeypatch.setattr(module, name, value, raising=False)


class Large(LogWorkload):
    """Messages of 60 kB, to the same places."""

    def size(self, chance: object) -> int:
        return 60_000


async def in_node(
    data: Path, min_free: str, work: Callable[[Node], Awaitable[None]]
) -> dict[str, int]:
    settings = {"data": data, "disk.min-free": min_free, **SETTINGS}
    assignments = [f"{key}={value}" for key, value in settings.items()]
    node = Node(load_settings(environment={}, assignments=assignments))
    try:
        async with asyncio.timeout(DEADLINE_S):
            await node.start()
            try:
                await work(node)
                assert node.failure is None
                return {
                    "flushes": node.flusher.counts.flushes,
                    "failed flushes": node.flusher.counts.failures,
                    **{kind: each.jobs for kind, each in node.maintenance.counts.items()},
                }
            finally:
                await node.close()
    except TimeoutError as error:
        counts = node.flusher.waiting, node.flusher.counts, node.maintenance.counts
        raise AssertionError(f"not done within {DEADLINE_S} s; flushes: {counts}") from error


async def fill(node: Node, workload: LogWorkload) -> None:
    """Append until it is refused."""
    while True:
        batch = workload.next_batch(node)
        try:
            workload.send(node, batch)
        except Refused:
            return
        await durable(node)
        await wait_on_loop(  # no faster than the work that is to meet the full disk
            lambda: node.flusher.waiting <= 1 or node.flusher.counts.failures,
            lambda: f"a flush: {node.flusher.counts}, {node.maintenance.counts}",
            PATIENCE_S,
        )


async def send_again(node: Node, workload: LogWorkload) -> None:
    """Send what was refused until it is taken, as a client does."""
    for sent in list(workload.unacked):

        def is_taken(sent: Sent = sent) -> bool:
            try:
                workload.send(node, sent)
            except BrokerError:
                return False
            return True

        await wait_on_loop(is_taken, "the end of the refusals", PATIENCE_S, every=0.1)
    await durable(node)


@pytest.mark.parametrize("min_free", ["32MiB", "4MiB"])
def test_a_disk_that_runs_full_costs_nothing_that_was_acked(
    tmp_path: Path, report: Callable[[object], None], min_free: str
):
    """With a wide margin, and with one that flushes and merges run into themselves."""
    workload = Large(messages=1 << 30)
    with small_disk(tmp_path / "disk", SIZE_MIB) as disk:
        ballast, data = disk / "ballast", disk / "data"
        ballast.write_bytes(bytes(BALLAST))
        did: dict[str, int] = {}

        async def run_full(node: Node) -> None:
            for name, (count, settings) in workload.topics.items():
                await make_topic(node, name, count, {**settings, "retention.ms": "-1"})
            await fill(node, workload)
            await asyncio.sleep(2)  # by design: flushes and merges meet the full disk
            workload.check(node)
            assert workload.unacked
            before = len(workload.ledger.acked)
            ballast.unlink()
            await send_again(node, workload)
            for _ in range(300):
                workload.send(node, workload.next_batch(node))
                await durable(node)
            workload.check(node)
            assert len(workload.ledger.acked) > before + 300
            report(f"{before} acked until full, {len(workload.ledger.acked)} in all")

        async def look(node: Node) -> None:
            workload.check(node)
            assert sum(1 for place in places() for _ in read(partition_of(node, place).log))

        did = asyncio.run(in_node(data, min_free, run_full))
        asyncio.run(in_node(data, min_free, look))

    report(did)
    assert did["flushes"] > 0
    assert did["merge"] > 0
