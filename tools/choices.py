"""The measurements that decision records quote: small, in turn, and kept in a file.

    python -m tools.choices      # prints, and writes benchmarks/results/<date>-...-choices.json

Not a benchmark of the product (that is benchmarks/run.py): each question compares ways to do one
thing. Ways are measured in turn in every round; the median of the rounds is kept, and for CPU the
least, since others may use the machine. Files lie beside the repository, on the measured disk.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import mmap
import os
import platform
import random
import shutil
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cramjam
import uvloop
from benchmarks.measure import machine
from benchmarks.report import RESULTS
from tests.log.samples import Sample, sealed

from trilogue.entry.compression import compress
from trilogue.log.files import OsFileSystem
from trilogue.log.jobs.flush import flush
from trilogue.log.journal.commit import NativeCommitter, PythonCommitter, commit_now

PLACE = Path(__file__).resolve().parent.parent / "build" / "choices"
ROUNDS, COMMITS, BLOCK = 5, 400, 4096
SPAN_BYTES = 32 << 20
PARTITIONS = 16

Figures = dict[str, float]


def in_turn(ways: dict[str, Callable[[], Figures]], rounds: int = ROUNDS) -> dict[str, Figures]:
    """Every way once a round; medians, and the least CPU."""
    found: dict[str, list[Figures]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            found[name].append(way())
    return {
        name: {
            key: round((min if key.startswith("cpu") else statistics.median)(values), 2)
            for key in legs[0]
            for values in [[leg[key] for leg in legs]]
        }
        for name, legs in found.items()
    }


def blocks() -> dict[str, Figures]:
    """One durable write of 4 KiB: into blocks written before, only allocated, or fresh."""
    window = memoryview(mmap.mmap(-1, BLOCK))

    def leg(prepare: Callable[[Path], None], *, direct: bool) -> Callable[[], Figures]:
        def run() -> Figures:
            path = PLACE / "blocks"
            path.unlink(missing_ok=True)
            path.touch()
            prepare(path)
            file = OsFileSystem().open(path, direct=direct)
            took = []
            for number in range(COMMITS):
                began = time.perf_counter()
                assert commit_now(file, window, number * BLOCK) == 0
                took.append(time.perf_counter() - began)
            file.close()
            return {"p50_us": statistics.median(took) * 1e6}

        return run

    def written(path: Path) -> None:
        with path.open("wb") as file:
            file.write(bytes(COMMITS * BLOCK))
            os.fsync(file.fileno())

    def allocated(path: Path) -> None:
        with path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, COMMITS * BLOCK)
            os.fsync(file.fileno())

    return in_turn(
        {
            "written before, direct": leg(written, direct=True),
            "written before, through the page cache": leg(written, direct=False),
            "allocated only, direct": leg(allocated, direct=True),
            "growing, direct": leg(lambda _: None, direct=True),
        }
    )


def threads() -> dict[str, Figures]:
    """From submit to the callback on the loop, while Python computes beside it or rests."""

    async def rounds(kind: str, *, busy: bool) -> Figures:
        loop = asyncio.get_running_loop()
        file = OsFileSystem().open(PLACE / "thread", direct=True)
        window = memoryview(mmap.mmap(-1, BLOCK))
        pool = ThreadPoolExecutor(1)
        maker = {"native": NativeCommitter, "python": PythonCommitter}.get(kind)
        committer = maker(loop) if maker else None
        waiting: list[asyncio.Future[int]] = []
        if committer:
            committer.start(lambda result: waiting.pop().set_result(result))
        took, cpu = [], time.process_time()
        for number in range(COMMITS):
            began = time.perf_counter()
            if committer:
                waiting.append(loop.create_future())
                committer.submit(file, window, number * BLOCK)
                done = waiting[0]
            else:
                done = loop.run_in_executor(pool, commit_now, file, window, number * BLOCK)
            while busy and time.perf_counter() - began < 0.0002:
                sum(range(100))
            assert await done == 0
            took.append(time.perf_counter() - began)
        cpu = time.process_time() - cpu
        if committer:
            committer.close()
        pool.shutdown()
        file.close()
        return {"p50_us": statistics.median(took) * 1e6, "cpu_us": cpu / COMMITS * 1e6}

    (PLACE / "thread").write_bytes(bytes(COMMITS * BLOCK))
    return in_turn(
        {
            f"{kind}, loop {'busy' if busy else 'idle'}": (
                lambda kind=kind, busy=busy: uvloop.run(rounds(kind, busy=busy))
            )
            for busy in (False, True)
            for kind in ("native", "python", "executor")
        }
    )


def flushes() -> dict[str, Figures]:
    """Sort a journal file of 32 MiB into a segment, by the size of its entries."""

    def leg(size: int) -> Callable[[], Figures]:
        folder = PLACE / f"flush-{size}"
        folder.mkdir()
        body = Sample(1, 0, size=size).data
        job = sealed(folder, frames_of(size, len(body)))

        def run() -> Figures:
            began, cpu = time.perf_counter(), time.process_time()
            result = flush(job, OsFileSystem())
            seconds = time.perf_counter() - began
            cpu = time.process_time() - cpu
            return {
                "mb_per_s": result.bytes_in / seconds / 1e6,
                "cpu_ns_per_entry": cpu / result.entries * 1e9,
            }

        return run

    return in_turn({f"{size} B": leg(size) for size in (168, 1024, 16 << 10)}, rounds=3)


def frames_of(size: int, entry: int) -> list[list[Sample]]:
    """Frames of about 256 KiB, entries of all partitions by turns."""
    count, a_frame = SPAN_BYTES // entry, max(1, (256 << 10) // entry)
    entries = [Sample(1 + at % PARTITIONS, at // PARTITIONS, size=size) for at in range(count)]
    return [entries[at : at + a_frame] for at in range(0, count, a_frame)]


def lz4() -> dict[str, Figures]:
    """Our frames of independent 64 KiB blocks beside the library's linked ones, on JSON lines."""
    chance = random.Random(1)
    lines = [
        f'{{"station": "s{chance.randrange(400)}", "at": {1_700_000_000 + at}, '
        f'"degrees": {chance.gauss(12, 8):.1f}}}'
        for at in range(8000)
    ]
    data = "\n".join(lines).encode()

    def leg(pack: Callable[[bytes], object]) -> Callable[[], Figures]:
        def run() -> Figures:
            began = time.process_time()
            for _ in range(20):
                packed = pack(data)
            cpu = (time.process_time() - began) / 20
            return {"bytes": float(len(packed)), "cpu_ms": cpu * 1e3}

        return run

    return {"plain bytes": {"bytes": float(len(data))}} | in_turn(
        {
            "independent blocks": leg(lambda each: compress(3, each)),
            "linked blocks": leg(lambda each: cramjam.lz4.compress(each, level=1)),
        }
    )


def main() -> None:
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    result = {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": machine(PLACE),
        "choices": {each.__name__: each() for each in (blocks, threads, flushes, lz4)},
    }
    shutil.rmtree(PLACE)
    for name, ways in result["choices"].items():
        print(name)
        for way, figures in ways.items():
            print(f"  {way:42}", "  ".join(f"{key} {value:,}" for key, value in figures.items()))
    kind = f"{os.cpu_count()}cpu-{platform.machine()}"
    path = RESULTS / f"{result['date'][:10]}-{kind}-choices.json"
    RESULTS.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main()
