"""What does object storage cost: to bring a segment there, to read it back through the cache?

    python -m benchmarks.object_storage [--folder DIR] [--size MiB]

One segment of 256 MiB goes to a directory and to moto's S3 server on this machine and is read back
from front to back, in pieces of 1 MiB as a fetch reads them. CPU is that of this process (the
client's side: hashing, TLS is none, copies, checksums), best of three. moto is a server in Python
that keeps objects in memory: its MB/s are its own limit, not that of S3; compare CPU. The plain
file, read by the same reader, is the line to compare with.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import obstore
from msgspec.structs import replace
from tests.log.samples import Sample, write_segment
from tests.s3 import CLUSTER, options, s3_server

from trilogue.log.files import OsFileSystem
from trilogue.log.objects.cache import ObjectCache
from trilogue.log.objects.objects import STORE, Objects, ObjectsEnvironment
from trilogue.log.objects.obstore_store import StoreOptions, open_store
from trilogue.log.segments.segment_info import SegmentInfo
from trilogue.log.segments.segment_reader import SegmentReaders

RUNS = 3
ENTRY = 16 << 10
FETCH = 1 << 20
AROUND = ObjectsEnvironment(time.monotonic, time.sleep, random.Random(1))


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds, and seconds of CPU of this process."""
    before, began = os.times(), time.perf_counter()
    work()
    after, ended = os.times(), time.perf_counter()
    return ended - began, after.user + after.system - before.user - before.system


def best(runs: list[tuple[float, float]], size: int) -> dict[str, float]:
    seconds, cpu = min(each[0] for each in runs), min(each[1] for each in runs)
    return {
        "mb_per_s": round(size / 1e6 / seconds),
        "cpu_s_per_gb": round(cpu / (size / 1e9), 2),
    }


def memory_kb() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def read_all(readers: SegmentReaders, info: SegmentInfo, count: int) -> None:
    offset = 0
    while offset < count:
        data = readers.read(info, 1, offset, FETCH)
        offset += len(data) // ENTRY


def measure(store: object, directory: Path, info: SegmentInfo, count: int) -> dict[str, object]:
    """Upload and read back, through what the server uses."""
    with (directory / info.name).open("rb") as file:
        mapped = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    objects = Objects(store, CLUSTER, AROUND)
    uploads, reads, requests = [], [], 0
    before = memory_kb()
    for run in range(RUNS):
        name = f"{run}{info.name[1:]}"
        there = replace(info, name=name, store=STORE)
        uploads.append(timed(lambda there=there: objects.put(there, mapped)))
    grown = memory_kb() - before
    for run in range(RUNS):
        there = replace(info, name=f"{run}{info.name[1:]}", store=STORE)
        cache = ObjectCache(objects, time.monotonic)
        readers = SegmentReaders(OsFileSystem(), directory / "nothing", objects=cache)
        reads_before = objects.counts.reads
        reads.append(timed(lambda readers=readers, there=there: read_all(readers, there, count)))
        requests = objects.counts.reads - reads_before
    for run in range(RUNS):
        objects.delete(f"{run}{info.name[1:]}")
    return {
        "upload": best(uploads, info.size) | {"memory_kb": grown},
        "read": best(reads, info.size) | {"requests": requests},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--size", type=int, default=256)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name, s3_server() as server:
        directory = Path(name)
        count = (arguments.size << 20) // ENTRY
        entries = [Sample(1, at, 1, ENTRY) for at in range(count)]
        info = write_segment(OsFileSystem(), directory, entries, entries_per_block=16)
        del entries
        (directory / "store").mkdir()
        local = SegmentReaders(OsFileSystem(), directory)
        runs = [timed(lambda: read_all(local, info, count)) for _ in range(RUNS)]
        local.close()
        found = {
            "segment_mib": arguments.size,
            "obstore": obstore.__version__,
            "file, page cache": {"read": best(runs, info.size)},
            "directory": measure(
                open_store(StoreOptions(f"file://{directory}/store")), directory, info, count
            ),
            "s3 (moto)": measure(open_store(options(server.port, "bench")), directory, info, count),
        }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
