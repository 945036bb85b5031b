"""Measure Trilogue beside a real Kafka, a real Pulsar, a real TubeMQ: one machine, in turn.

    python -m benchmarks.run                          # everything, about twenty minutes
    python -m benchmarks.run --only pulsar            # the rows beside a Pulsar, or tubemq
    python -m benchmarks.run --rows one-in-flight,batched-1KiB --rounds 1 --no-save

Both servers run at the same time and are asked in turn (K T T K K T), so that a change of the
machine's mood meets both; while one is asked the other is idle, and nobody is asked before both
are quiet. The Kafka syncs every batch before its ack (log.flush.interval.messages=1), as Trilogue
does by default, and its JVM is warmed under load before anything is measured. Data lie on a real
disk. Medians over the rounds are shown and judged; the file keeps every round. A real TubeMQ has no
such setting: see tubemq.py.
"""

from __future__ import annotations

import argparse
import datetime as dt
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tools.servers.kafka import have_jars
from tools.servers.pulsar import VERSION as PULSAR_VERSION
from tools.servers.pulsar import have_jars as have_pulsar_jars
from tools.servers.tubemq import VERSION as TUBEMQ_VERSION
from tools.servers.tubemq import have_jars as have_tubemq_jars

import trilogue
from benchmarks import pulsar, report, tubemq
from benchmarks.drivers import Drivers
from benchmarks.measure import NOT_A_DISK, file_system, have_strace, machine, memory_mb, settle
from benchmarks.rows import PRODUCER, ROWS, START_GATES, Figures, Row, Stage
from benchmarks.servers import KAFKA, TRILOGUE, Contender, create_topic, make
from trilogue.log import commit

BUILD = Path(__file__).resolve().parent.parent / "build" / "bench"
START = "start-and-idle"
PEERS = (KAFKA, pulsar.PULSAR, tubemq.TUBEMQ)


def options() -> argparse.Namespace:
    names = ",".join([START, *(row.name for row in ROWS), *pulsar.NAMES, *tubemq.NAMES])
    parser = argparse.ArgumentParser(description="Trilogue beside a real Kafka or Pulsar, in turn")
    parser.add_argument("--rows", default=names, help=names)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measured leg")
    parser.add_argument("--warm", type=float, default=24.0, help="seconds of load for the JVM")
    parser.add_argument("--pulsar-rounds", type=int, default=1)
    parser.add_argument("--tubemq-rounds", type=int, default=1)
    parser.add_argument("--only", choices=PEERS, help="rows beside this server, no others")
    parser.add_argument("--ours", action="store_true", help="only Trilogue, beside nobody")
    parser.add_argument("--kafka-version", default="3.9.1")
    parser.add_argument("--directory", type=Path, default=BUILD)
    parser.add_argument("--no-save", action="store_true")
    return parser.parse_args()


def start_row(chosen: argparse.Namespace, names: list[str]) -> dict[str, object]:
    """Fresh data: from exec to the first answer, and the memory when it has come to rest."""
    legs: report.Legs = {name: [] for name in names}
    for number in range(chosen.rounds):
        for name in names:
            root = chosen.directory / f"start-{name}-{number}"
            server = make(name, root, kafka_version=chosen.kafka_version)
            server.start()
            settle([server.pid])
            time.sleep(1)
            idle = memory_mb(server.pid)
            legs[name].append({"start_s": server.started_in, "idle_mb": idle})
            server.stop()
            shutil.rmtree(root, ignore_errors=True)
    question = "From exec to the first answer on fresh data; memory of the idle process tree."
    return report.summarise(START, question, legs, START_GATES)


def warm(stage: Stage, seconds: float) -> None:
    """Let compilers and caches come to rest: all kinds of load, on both servers alike."""
    for server in stage.servers:
        create_topic(server.address, "warm", 4)
        for connections, size, share in ((50, 100, 0.35), (1, 100, 0.2), (4, 1000, 0.1)):
            stage.drivers.load(
                server.address, "warm", partitions=4, connections=connections, size=size,
                warmup=0.0, seconds=seconds * share,
            )  # fmt: skip
        stage.drivers.rdkafka(
            "produce", server.address, "warm", settings=PRODUCER, size=1024, warmup=0.0,
            seconds=seconds * 0.35,
        )  # fmt: skip


def measure(stage: Stage, row: Row, rounds: int) -> dict[str, object]:
    """All legs of a row, the order of the servers turned round each time."""
    legs: report.Legs = {server.name: [] for server in stage.servers}
    for server in stage.servers:
        row.prepare(stage, server)
    for number in range(rounds):
        for server in stage.servers if number % 2 == 0 else stage.servers[::-1]:
            legs[server.name].append(row.leg(stage, server))
    for server in stage.servers:
        row.check(server, legs[server.name])
    if row.syncs and have_strace():
        for server in stage.servers:
            figures = row.syncs(stage, server)
            legs[server.name] = [leg | figures for leg in legs[server.name]]
    return report.summarise(row.name, row.question, legs, row.gates)


def restart_row(servers: list[Contender]) -> dict[str, object]:
    """kill -9 with all that the run wrote, and the first answer after it."""
    legs: dict[str, list[Figures]] = {}
    for server in servers:
        server.kill9()
        server.start()
        legs[server.name] = [{"restart_s": server.started_in}]
    question = "From exec to the first answer after kill -9, on the data of this run."
    return report.summarise("restart", question, legs, ())


def run(chosen: argparse.Namespace) -> list[dict[str, object]]:
    names = [TRILOGUE] if chosen.ours else [KAFKA, TRILOGUE]
    wanted = chosen.rows.split(",")
    rows: list[dict[str, object]] = []

    def done(row: dict[str, object]) -> None:
        rows.append(row)
        print(report.table([row]).split("\n", 1)[1], flush=True)

    peers = [chosen.only] if chosen.only else PEERS
    if KAFKA in peers:
        beside_kafka(chosen, names, wanted, done)
    if pulsar.PULSAR in peers:
        pulsar.run(chosen, BUILD, done)
    if tubemq.TUBEMQ in peers:
        tubemq.run(chosen, BUILD, done)
    return rows


def beside_kafka(
    chosen: argparse.Namespace,
    names: list[str],
    wanted: list[str],
    done: Callable[[dict[str, object]], None],
) -> None:
    """The rows of rows.py."""
    if START in wanted:
        done(start_row(chosen, names))
    asked = [row for row in ROWS if row.name in wanted]
    if not asked:
        return
    servers = [
        make(name, chosen.directory / name, kafka_version=chosen.kafka_version) for name in names
    ]
    try:
        for server in servers:
            server.start()
        stage = Stage(Drivers(BUILD), servers, chosen.directory, chosen.seconds)
        warm(stage, chosen.warm)
        for row in asked:
            done(measure(stage, row, chosen.rounds))
        done(restart_row(servers))
    finally:
        for server in servers:
            server.kill9()


def what_is_missing(chosen: argparse.Namespace) -> str:
    """Jars that this run wants and that are not there."""
    peers = [chosen.only] if chosen.only else PEERS
    have = {
        f"Kafka {chosen.kafka_version}": KAFKA not in peers
        or chosen.ours
        or have_jars(chosen.kafka_version),
        f"Pulsar {PULSAR_VERSION}": pulsar.PULSAR not in peers or have_pulsar_jars(),
        f"TubeMQ {TUBEMQ_VERSION}": tubemq.TUBEMQ not in peers or have_tubemq_jars(),
    }
    return ", ".join(name for name, found in have.items() if not found)


def rounds_of(chosen: argparse.Namespace) -> int:
    return {
        pulsar.PULSAR: chosen.pulsar_rounds,
        tubemq.TUBEMQ: chosen.tubemq_rounds,
    }.get(chosen.only, chosen.rounds)


def main() -> int:
    chosen = options()
    if missing := what_is_missing(chosen):
        print(f"no {missing}: run `make jars`", file=sys.stderr)
        return 2
    shutil.rmtree(chosen.directory, ignore_errors=True)
    chosen.directory.mkdir(parents=True)
    if file_system(chosen.directory) in NOT_A_DISK:
        print(f"{chosen.directory} is not on a disk: choose another --directory", file=sys.stderr)
        return 2
    began = time.monotonic()
    rows = run(chosen)
    result = {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "took_s": round(time.monotonic() - began),
        "machine": machine(chosen.directory),
        "versions": {
            "trilogue": trilogue.__version__,
            "compiled": not commit.__file__.endswith(".py"),
            "kafka": chosen.kafka_version,
            "pulsar": PULSAR_VERSION,
            "tubemq": TUBEMQ_VERSION,
        },
        "durability": "fsync before every ack on both sides",
        "rounds": rounds_of(chosen),
        "seconds_a_leg": chosen.seconds,
        "rows": rows,
    }
    shutil.rmtree(chosen.directory, ignore_errors=True)
    print("\n" + report.table(rows))
    if not chosen.no_save:
        print(f"\nwritten to {report.save(result).relative_to(Path.cwd())}")
    missed = [gate for row in rows for gate in row["gates"] if not gate["passed"]]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
