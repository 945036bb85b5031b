"""What several nodes give, and what `ack=shared` costs.

    python -m benchmarks.nodes [--seconds 5] [--share 0.4] [--of local] [--of shared] [--no-save]

`local`: `serve --nodes 1`, 2 and 3 on this machine, one after the other. Each node, with its helper
process, has a control group with so much of a processor, so that the machine has enough for all of
them and for the load; without rights to control groups there is no limit, and the rates say only
what this machine's cores give (`cpu_limit` null). Each node gets the same load for a topic of its
own: ready-made batches (load.c) of 10 records of 1 KiB, from 4 connections with 4 requests in
flight. Rates are sums; `ratio` is to one node. CPU is that of all processes of the server.

`shared`: a cluster of one node, and of three, over a PostgreSQL server of its own: one request in
flight, 100 bytes. `window_ms` is the mean time of a window's commit, by the node's own metrics,
`client_p50_ms` what the client sees; beside them `postgres_ms`, the mean time of a commit of one
row of the same size by the same library, before and after, and its median.

Prints one JSON object and, without `--no-save`, writes it to benchmarks/results.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import json
import re
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic
from tests.node.cluster.shared_cluster import SharedCluster
from tests.node.supervisor.test_nodes import QUIET
from tests.postgres import PostgresServer, require_postgres
from tests.server import Server, run_trilogue, start_server

from benchmarks.drivers import BUILD, Drivers, Result
from benchmarks.measure import CGROUP, cpu_seconds, machine, tree

PERIOD_US = 100_000
RESULTS = Path(__file__).parent / "results"
BATCHES = {"connections": 4, "window": 4, "records": 10, "size": 1024}
SINGLE = {"connections": 1, "window": 1, "records": 1, "size": 100}
TOPICS_MAX = 60
COMMITS = 300
LIMIT_S = 120.0
METRIC = "trilogue_journal_commit_seconds"


class Place(NamedTuple):
    """A topic with one partition, and the listener of its node."""

    address: str
    topic: str


def places_of(address: str, count: int) -> list[Place]:
    """Create topics until each of so many nodes leads one."""
    admin = AdminClient({"bootstrap.servers": address, **QUIET})
    found: dict[int, Place] = {}
    for number in range(TOPICS_MAX):
        topic = f"load-{number}"
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(LIMIT_S)
        listed = admin.list_topics(topic, timeout=LIMIT_S)
        leader = listed.topics[topic].partitions[0].leader
        broker = listed.brokers[leader]
        found.setdefault(leader, Place(f"{broker.host}:{broker.port}", topic))
        if len(found) == count:
            return list(found.values())
    raise RuntimeError(f"{TOPICS_MAX} topics are with {len(found)} of {count} nodes")


def load_together(drivers: Drivers, places: Sequence[Place], **options: float) -> list[Result]:
    """Run the same load at each place at once."""
    with ThreadPoolExecutor(len(places)) as pool:
        runs = [pool.submit(drivers.load, *each, **options) for each in places]
        return [each.result() for each in runs]


@contextmanager
def limited(groups: Sequence[Sequence[int]], share: float) -> Iterator[float | None]:
    """Give each group of processes so much of a processor; None where that is not possible."""
    quota, one = round(share * PERIOD_US), CGROUP / "cgroup.controllers"
    root = CGROUP if one.exists() else CGROUP / "cpu"
    name, text = ("cpu.max", f"{quota} {PERIOD_US}") if one.exists() else (
        "cpu.cfs_quota_us", str(quota)
    )  # fmt: skip
    made: list[Path] = []
    given: float | None = share
    try:
        for number, pids in enumerate(groups):
            folder = root / f"trilogue-bench-{number}"
            folder.mkdir()
            made.append(folder)
            (folder / name).write_text(text)
            for pid in pids:
                (folder / "cgroup.procs").write_text(str(pid))
    except OSError:
        given = None
    try:
        yield given
    finally:
        for folder in made:
            with suppress(OSError):
                for pid in (folder / "cgroup.procs").read_text().split():
                    (root / "cgroup.procs").write_text(pid)
                folder.rmdir()


def measure_local(drivers: Drivers, home: Path, seconds: float, share: float) -> dict[str, object]:
    """Return rates and CPU with one, two and three nodes of one machine."""
    rows: dict[str, object] = {}
    base: tuple[float, float] | None = None
    for count in (1, 2, 3):
        listen = {"kafka": "127.0.0.1:0"}
        with start_server(home / f"local-{count}", listen=listen, nodes=count) as server:
            places = places_of(server.kafka, count)
            groups = [tree(pid) for pid in pids_of_nodes(server, count)]
            with limited(groups, share) as limit:
                load_together(drivers, places, **BATCHES, warmup=2.0, seconds=2.0)
                before_s = cpu_seconds(server.pid)
                results = load_together(drivers, places, **BATCHES, warmup=0.0, seconds=seconds)
                used_s = cpu_seconds(server.pid) - before_s
        requests = sum(each["requests"] for each in results)
        rate = sum(each["requests"] / each["seconds"] for each in results) * BATCHES["records"]
        cpu_us = used_s / (requests * BATCHES["records"]) * 1e6
        base = base or (rate, cpu_us)
        rows[str(count)] = {
            "messages_per_s": round(rate),
            "ratio": round(rate / base[0], 2),
            "cpu_us_per_message": round(cpu_us, 2),
            "cpu_ratio": round(cpu_us / base[1], 2),
            "cpu_limit": limit,
        }
    return rows


def pids_of_nodes(server: Server, count: int) -> list[int]:
    """Return the process ids of the nodes; one node is the server itself."""
    if count == 1:
        return [server.pid]
    listed = run_trilogue("nodes", "list", "--json", "--server", server.kafka)
    return [row["pid"] for row in json.loads(listed.stdout)]


def commit_times(server: Server) -> tuple[float, float]:
    """Return the seconds of a node's commits, and their number, of its metrics."""
    with urllib.request.urlopen(f"{server.http}/metrics", timeout=LIMIT_S) as reply:
        text = reply.read().decode()
    found = [
        sum(
            float(each)
            for each in re.findall(rf"^{METRIC}_{part}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
        )
        for part in ("sum", "count")
    ]
    return found[0], found[1]


def commit_rows(url: str, size: int) -> tuple[float, float]:
    """Return the milliseconds of a commit of one row in PostgreSQL: mean and median."""

    async def commit() -> list[float]:
        import asyncpg

        connection = await asyncpg.connect(url)
        await connection.execute("CREATE TABLE IF NOT EXISTS bench (n BIGINT PRIMARY KEY, d BYTEA)")
        await connection.execute("TRUNCATE bench")
        insert = await connection.prepare("INSERT INTO bench VALUES ($1, $2)")
        taken_s = []
        for number in range(COMMITS):
            began_s = time.perf_counter()
            await insert.fetch(number, bytes(size))
            taken_s.append(time.perf_counter() - began_s)
        await connection.close()
        return taken_s

    taken_s = asyncio.run(commit())
    return statistics.mean(taken_s) * 1e3, statistics.median(taken_s) * 1e3


def measure_shared(
    drivers: Drivers, home: Path, postgres: PostgresServer, seconds: float
) -> dict[str, object]:
    """Return the time of an acknowledgement with `ack=shared`, with one node and with three."""
    rows: dict[str, object] = {}
    for count in (1, 3):
        place = home / f"shared-{count}"
        place.mkdir()
        cluster = SharedCluster(place, postgres, count)
        try:
            nodes = cluster.start_all(LIMIT_S)
            places = places_of(nodes[0].kafka, count)
            served = {each.kafka: each for each in nodes}
            node = served[places[0].address]
            commits_ms = [commit_rows(cluster.url, SINGLE["size"])]
            load_together(drivers, places[:1], **SINGLE, warmup=2.0, seconds=1.0)
            before = commit_times(node)
            (result,) = load_together(drivers, places[:1], **SINGLE, warmup=0.0, seconds=seconds)
            after = commit_times(node)
            commits_ms.append(commit_rows(cluster.url, SINGLE["size"]))
            for each in nodes:
                each.stop()
        finally:
            cluster.kill_all()
        mean_ms, p50_ms = (statistics.mean(each) for each in zip(*commits_ms, strict=True))
        window_ms = (after[0] - before[0]) / max(1.0, after[1] - before[1]) * 1e3
        rows[str(count)] = {
            "window_ms": round(window_ms, 3),
            "client_p50_ms": round(result["p50_ms"], 3),
            "postgres_ms": round(mean_ms, 3),
            "postgres_p50_ms": round(p50_ms, 3),
            "window_ratio": round(window_ms / mean_ms, 2),
            "client_ratio": round(result["p50_ms"] / p50_ms, 2),
        }
    return rows


def save(found: dict[str, object], seconds: float) -> Path:
    """Write the figures to the day's file of nodes, in which other parts of the day stay."""
    now, about = dt.datetime.now(dt.UTC), machine(BUILD)
    name = f"{now:%Y-%m-%d}-{about['cpus']}cpu-{about['architecture']}-nodes.json"
    path = RESULTS / name
    before = json.loads(path.read_text())["nodes"] if path.exists() else {}
    result = {
        "date": now.isoformat(timespec="seconds"),
        "command": f"python -m benchmarks.nodes --seconds {seconds:g}",
        "machine": about,
        "nodes": before | found,
    }
    path.write_text(json.dumps(result, indent=1) + "\n")
    return path


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--share", type=float, default=0.4)
    parser.add_argument("--of", choices=("local", "shared"), action="append")
    parser.add_argument("--no-save", action="store_true")
    chosen = parser.parse_args()
    found: dict[str, object] = {}
    drivers = Drivers(BUILD)
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        home.chmod(0o755)
        if "local" in (chosen.of or ("local",)):
            found["local"] = measure_local(drivers, home, chosen.seconds, chosen.share)
        if "shared" in (chosen.of or ("shared",)):
            (home / "postgres").mkdir()
            postgres = PostgresServer(require_postgres(), home / "postgres")
            postgres.initialize()
            postgres.start()
            stack.callback(postgres.stop)
            found["shared"] = measure_shared(drivers, home, postgres, chosen.seconds)
    print(json.dumps(found, indent=1))
    if not chosen.no_save:
        print(f"saved: {save(found, chosen.seconds)}")


if __name__ == "__main__":
    main()
