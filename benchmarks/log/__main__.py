"""Measure the log without sockets and judge it by its gates.

    python -m benchmarks.log                              # everything, under eight minutes
    python -m benchmarks.log --parts memory,recovery --rounds 1 --no-save
    python -m benchmarks.log --segments ~/segments        # where the 10^8 messages are kept

On a shared machine compare CPU figures and ratios; a result is only kept from a quiet one.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import shutil
import sys
import time
from pathlib import Path

import trilogue
from benchmarks.log import report
from benchmarks.log.appends import appends
from benchmarks.log.memory import memory
from benchmarks.log.reads import reads
from benchmarks.log.recovery import recovery
from benchmarks.log.starts import starts
from benchmarks.log.world import report_line
from benchmarks.log.writes import writes
from benchmarks.measure import NOT_A_DISK, file_system, machine
from trilogue.log.journal import commit

BUILD = Path(__file__).resolve().parent.parent.parent / "build"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("benchmarks.log", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--directory", type=Path, default=BUILD / "bench-log", help="work here")
    parser.add_argument("--segments", type=Path, default=BUILD / "bench-segments", help="keep here")
    parser.add_argument("--parts", default="memory,recovery,start,reads,writes,appends")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each leg")
    parser.add_argument("--no-save", action="store_true")
    return parser.parse_args()


def main() -> int:
    chosen = options()
    folder = chosen.directory
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if file_system(folder) in NOT_A_DISK:
        print(f"{folder} is not on a disk: choose another --directory", file=sys.stderr)
        return 2
    parts = {
        "memory": lambda: memory(folder, chosen.rounds),
        "recovery": lambda: recovery(folder, chosen.rounds),
        "start": lambda: starts(chosen.segments, chosen.rounds),
        "reads": lambda: reads(folder, chosen.seconds / 2),
        "writes": lambda: writes(folder),
        "appends": lambda: appends(folder, chosen.rounds, chosen.seconds),
    }
    began = time.monotonic()
    result: report.Result = {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": machine(folder),
        "trilogue": trilogue.__version__,
        "compiled": not commit.__file__.endswith(".py"),
        "flush": "commit: fsync before every ack",
        "load_average": [round(each, 2) for each in os.getloadavg()],
        "rounds": chosen.rounds,
        "seconds_a_leg": chosen.seconds,
    }
    for name in chosen.parts.split(","):
        report_line(f"{name} ...")
        result[name] = parts[name]()
    result["took_s"] = round(time.monotonic() - began)
    result["load_average_after"] = [round(each, 2) for each in os.getloadavg()]
    result["gates"] = report.judge(result)
    shutil.rmtree(folder, ignore_errors=True)
    print(report.table(result))
    if not chosen.no_save:
        print(f"\nwritten to {report.save(result)}")
    return 0 if all(gate["passed"] for gate in result["gates"]) else 1


if __name__ == "__main__":
    sys.exit(main())
