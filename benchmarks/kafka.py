"""Trilogue beside a real Kafka: the rows of `python -m benchmarks.run --only kafka`.

Three servers in one run: a Kafka that syncs every batch before its ack, as Trilogue does; the same
Kafka with its own default, which acknowledges from the page cache (`kafka-default`); Trilogue. All
run all the time and are measured in turn (K D T T D K). No server is measured before all are quiet
and the page cache is written: what one of them has put off would be paid by the next.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import report
from benchmarks.drivers import Drivers
from benchmarks.gates import KAFKA, KAFKA_DEFAULT, TRILOGUE, Figures
from benchmarks.kafka_legs import warm_all
from benchmarks.kafka_rows import NAMES, RESTART, ROWS, START, START_GATES, STARTED
from benchmarks.kafka_security import make_secured
from benchmarks.measure import have_strace, memory_mb, settle
from benchmarks.rows import Row, Stage
from benchmarks.servers import Contender, make

OUR_WARMING_S = 6.0  # there is no compiler that has to learn


def start_row(chosen: argparse.Namespace, names: list[str]) -> dict[str, object]:
    """Fresh data: from exec to the first answer, and the memory when it has come to rest."""
    legs: report.Legs = {name: [] for name in names if name in STARTED}
    for number in range(chosen.rounds):
        for name, found in legs.items():
            root = chosen.directory / f"start-{name}-{number}"
            server = make(name, root, kafka_version=chosen.kafka_version)
            server.start()
            settle([server.pid])
            time.sleep(1)
            idle = memory_mb(server.pid)
            found.append({"start_s": server.started_in, "idle_mb": idle})
            server.stop()
            shutil.rmtree(root, ignore_errors=True)
    question = "From exec to the first answer on fresh data; memory of the idle process tree."
    return report.summarise(START, question, legs, START_GATES)


def measure(stage: Stage, row: Row, rounds: int) -> dict[str, object]:
    """All legs of a row, the order of the servers turned round each time."""
    servers = [server for server in stage.servers if server.name in row.servers]
    legs: report.Legs = {server.name: [] for server in servers}
    for server in servers:
        row.prepare(stage, server)
    for number in range(min(rounds, row.rounds_max)):
        for server in servers if number % 2 == 0 else servers[::-1]:
            legs[server.name].append(row.leg(stage, server))
    for server in servers:
        row.check(server, legs[server.name])
    if row.syncs and have_strace():
        for server in servers:
            figures = row.syncs(stage, server)
            legs[server.name] = [leg | figures for leg in legs[server.name]]
    return report.summarise(row.name, row.question, legs, row.gates)


def restart_row(servers: Sequence[Contender]) -> dict[str, object]:
    """kill -9 with all that the run wrote, and the first answer after it."""
    legs: dict[str, list[Figures]] = {}
    for server in servers:
        if server.name not in STARTED:
            continue
        server.kill9()
        server.start()
        legs[server.name] = [{"restart_s": server.started_in}]
        server.stop()  # the next one starts without it
    question = "From exec to the first answer after kill -9, on the data of this run."
    return report.summarise(RESTART, question, legs, ())


def run(chosen: argparse.Namespace, build: Path, done: Callable[[dict[str, object]], None]) -> None:
    """Measure all requested rows; each is passed to `done` when it is there."""
    names = [TRILOGUE] if chosen.ours else [KAFKA, KAFKA_DEFAULT, TRILOGUE]
    wanted = set(chosen.rows.split(",")) & set(NAMES)
    if START in wanted:
        done(start_row(chosen, names))
    rows = [row for row in ROWS if row.name in wanted]
    needed = {name for row in rows for name in row.servers}
    if RESTART in wanted:
        needed |= set(STARTED)
    servers = make_secured(
        [name for name in names if name in needed], chosen.directory, chosen.kafka_version
    )
    try:
        for server in servers:
            server.start()
        stage = Stage(Drivers(build), servers, chosen.directory, chosen.seconds)
        for server in servers if rows else []:
            ours = server.name == TRILOGUE
            warm_all(stage, server, min(chosen.warm, OUR_WARMING_S) if ours else chosen.warm)
        for row in rows:
            done(measure(stage, row, chosen.rounds))
        if RESTART in wanted:
            done(restart_row(servers))
    finally:
        for server in servers:
            server.kill9()
            shutil.rmtree(chosen.directory / server.name, ignore_errors=True)
