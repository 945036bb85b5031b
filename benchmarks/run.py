"""Measure Trilogue beside a real Kafka, a real Pulsar, a real TubeMQ: one machine, in turn.

    python -m benchmarks.run                          # everything, about twenty-five minutes
    python -m benchmarks.run --only kafka             # the rows beside a Kafka; pulsar, tubemq
    python -m benchmarks.run --rows one-in-flight,burst-1KiB --rounds 1 --no-save

All servers of a part run at the same time and are measured in turn (K D T T D K), so that a change
of the machine's speed meets all; while one is measured the others are idle, and none is measured
before all are quiet. The Kafka syncs every batch before its ack (log.flush.interval.messages=1), as
Trilogue does by default; a second one with its own default stands beside it (kafka.py). JVMs are
warmed under load before anything is measured. Data lie on a real disk. Medians over the rounds are
shown and judged; the file keeps every round. A real TubeMQ has no such setting: see tubemq.py.

At the end stand a comparison with the runs before, which fails on a loss of more than a tenth, and
build/benchmarks.html, a page of pictures.
"""

from __future__ import annotations

import argparse
import datetime as dt
import shutil
import sys
import time
from pathlib import Path

from tools.servers.kafka import have_jars
from tools.servers.pulsar import VERSION as PULSAR_VERSION
from tools.servers.pulsar import have_jars as have_pulsar_jars
from tools.servers.tubemq import VERSION as TUBEMQ_VERSION
from tools.servers.tubemq import have_jars as have_tubemq_jars

import trilogue
from benchmarks import kafka, kafka_rows, page, pulsar, report, tubemq
from benchmarks.compare import compare_with_earlier, table
from benchmarks.drivers import BUILD
from benchmarks.gates import KAFKA
from benchmarks.measure import NOT_A_DISK, file_system, machine
from trilogue.log.journal import commit

PEERS = (KAFKA, pulsar.PULSAR, tubemq.TUBEMQ)


def options() -> argparse.Namespace:
    names = ",".join([*kafka_rows.NAMES, *pulsar.NAMES, *tubemq.NAMES])
    parser = argparse.ArgumentParser(description="Trilogue beside a real Kafka or Pulsar, in turn")
    parser.add_argument("--rows", default=names, help=names)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measured leg")
    parser.add_argument("--warm", type=float, default=24.0, help="seconds of load for the JVM")
    parser.add_argument("--pulsar-rounds", type=int, default=1)
    parser.add_argument("--tubemq-rounds", type=int, default=1)
    parser.add_argument("--only", choices=PEERS, help="rows beside this server, no others")
    parser.add_argument("--ours", action="store_true", help="only Trilogue, beside nobody")
    parser.add_argument("--kafka-version", default=kafka_rows.KAFKA_VERSION)
    parser.add_argument("--directory", type=Path, default=BUILD)
    parser.add_argument("--no-save", action="store_true")
    return parser.parse_args()


def run(chosen: argparse.Namespace) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []

    def done(row: dict[str, object]) -> None:
        rows.append(row)
        print(report.table([row]), flush=True)

    peers = [chosen.only] if chosen.only else PEERS
    if KAFKA in peers:
        kafka.run(chosen, BUILD, done)
    if pulsar.PULSAR in peers:
        pulsar.run(chosen, BUILD, done)
    if tubemq.TUBEMQ in peers:
        tubemq.run(chosen, BUILD, done)
    return rows


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
    chosen.directory = chosen.directory.absolute()  # the servers run elsewhere
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
        "durability": "fsync before every ack, but for kafka-default and a real TubeMQ",
        "rounds": rounds_of(chosen),
        "seconds_a_leg": chosen.seconds,
        "rows": rows,
    }
    shutil.rmtree(chosen.directory, ignore_errors=True)
    print("\n" + report.table(rows))
    if not chosen.no_save:
        print(f"\nwritten to {report.save(result).relative_to(Path.cwd())}")
        print(f"pictures: {page.write().relative_to(Path.cwd())}")
    changes = compare_with_earlier(result)
    print(f"\nbeside the runs before:\n{table(changes)}")
    missed = [gate for row in rows for gate in row["gates"] if not gate["passed"]]
    return 1 if missed or any(each.is_lost for each in changes) else 0


if __name__ == "__main__":
    sys.exit(main())
