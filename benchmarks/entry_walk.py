"""What does the entry room cost per request and per record, compiled and uncompiled?

    python -m benchmarks.entry_walk [--json FILE]

Every number is CPU time of this process, as the machine may be shared: the smallest of `ROUNDS`
rounds, with the median beside it (far apart: the machine was busy). Rates are per core. Read it
because of the promise that `check_produced` costs the same for one record and for a thousand
but for the checksum, so the row of 110 KB divided by its size must come near the checksum's own.
The uncompiled column is the same source without a compiler; it has to work, not to be fast.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pyarrow as pa
from tests.pure import load_pure

from trilogue.entry import arrow, walk
from trilogue.entry.checksum import crc32c
from trilogue.entry.entry import Record
from trilogue.entry.kafka import record_batch as kafka_batch

ROUNDS = 9
ROUND_SECONDS = 0.05
START = 1_700_000_000_000
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def modules(*, pure: bool) -> dict[str, ModuleType]:
    """The room's modules as installed, or their uncompiled twins."""
    if not pure:
        return {"walk": walk, "kafka_batch": kafka_batch, "arrow": arrow}
    twins = {f"trilogue__entry__{m}": load_pure(f"trilogue.entry.{m}") for m in ("walk", "pack")}
    twins["trilogue__entry__columns"] = load_pure("trilogue.entry.columns")
    batch = load_pure("trilogue.entry.kafka.record_batch", **twins)
    return {
        "walk": twins["trilogue__entry__walk"],
        "kafka_batch": batch,
        "arrow": load_pure(
            "trilogue.entry.arrow", **twins, trilogue__entry__kafka__record_batch=batch
        ),
    }


def batch_of(count: int, codec: int = 0) -> bytes:
    """Records with a key of 8 and a value of 100 bytes."""
    records = [Record(i, START + i, b"%08d" % i, b"x" * 100) for i in range(count)]
    return kafka_batch.build_batch(records, codec=codec)


def seconds_per_call(call: Callable[[], object]) -> tuple[float, float]:
    """The smallest and the median CPU time of a call."""
    began = time.process_time()
    call()
    repeat = max(1, int(ROUND_SECONDS / max(1e-7, time.process_time() - began)))
    rounds = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(repeat):
            call()
        rounds.append((time.process_time() - began) / repeat)
    return min(rounds), statistics.median(rounds)


def to_columns(room: dict[str, ModuleType], entries: bytes, names: tuple[str, ...]) -> None:
    reader = room["arrow"].ArrowReader("flights", 0, columns=names)
    for _ in reader.feed(entries):
        pass
    for _ in reader.flush():
        pass


def rows_of(entries: bytes) -> pa.RecordBatch:
    reader = arrow.ArrowReader("flights", 0, columns=("key", "value", "timestamp"))
    return next(iter([*reader.feed(entries), *reader.flush()]))


Case = tuple[str, int, Callable[[], object]]  # what, how many units, the call


def cases(room: dict[str, ModuleType], scale: int) -> list[Case]:
    """Calls to time; `scale` keeps the uncompiled ones short."""
    one = memoryview(bytearray(batch_of(1)))
    large = memoryview(bytearray(batch_of(1000)))
    many = bytes(one) * (100 * scale)
    chain = b"".join(
        kafka_batch.build_batch(
            [Record(b + i, START + i, b"%08d" % i, b"x" * 100) for i in range(1000)]
        )
        for b in range(0, 1000 * scale, 1000)
    )
    header, records = walk.read_header(large), large[61:]
    rows = rows_of(chain)
    check, batch = room["walk"].check_produced, room["kafka_batch"]
    return [
        (f"check_produced, 1 record, {len(one)} B", 1, lambda: check(one)),
        (f"check_produced, 1000 records, {len(large)} B", 1, lambda: check(large)),
        (f"  of which the checksum of {len(large)} B", 1, lambda: crc32c(large[21:])),
        ("set_base", 1, lambda: room["walk"].set_base(one, 1, 1)),
        ("walk_headers", 100 * scale, lambda: room["walk"].walk_headers(many)),
        ("walk records", 1000, lambda: room["walk"].RecordWalker(header, records).find_time(2**60)),
        ("records to objects", 1000, lambda: sum(1 for _ in batch.iter_records(large))),
        ("to 7 columns, checksum included", 1000 * scale, lambda: to_columns(room, chain, COLUMNS)),
        ("to the value column", 1000 * scale, lambda: to_columns(room, chain, ("value",))),
        (
            "columns to entries of 1 MiB, checksum included",
            1000 * scale,
            lambda: room["arrow"].build_from_arrow(rows, 0, 1 << 20, timestamp_ms=START),
        ),
    ]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    options.add_argument("--json", type=Path, help="also write the figures to this file")
    chosen = options.parse_args()
    compiled = not str(walk.__file__).endswith(".py")
    found: dict[str, dict[str, float]] = {}
    for name, pure, scale in (("installed", False, 60), ("uncompiled", True, 2)):
        for what, units, call in cases(modules(pure=pure), scale):
            best, median = seconds_per_call(call)
            row = found.setdefault(what, {})
            row[f"{name}_ns"] = round(best / units * 1e9, 1)
            row[f"{name}_median_ns"] = round(median / units * 1e9, 1)
    print(f"installed modules are {'compiled' if compiled else 'NOT compiled'}; ns a unit")
    print(f"{'':50}{'installed':>12}{'(median)':>12}{'uncompiled':>12}")
    for what, row in found.items():
        ours, median, pure_ns = (
            row[key] for key in ("installed_ns", "installed_median_ns", "uncompiled_ns")
        )
        print(f"{what:50}{ours:>12}{median:>12}{pure_ns:>12}")
    if chosen.json:
        chosen.json.write_text(json.dumps({"compiled": compiled, "rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
