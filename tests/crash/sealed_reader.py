"""Reads a data directory without its broker, again and again, until a stop file exists.

    python -m tests.crash.sealed_reader DATA SEEN_FILE STOP_FILE

Everything it reads was written by a `LogWorkload`: one producer, so that a message's sequence is
its offset. It prints what it saw as JSON, and ends with an error at the first thing that cannot be.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path

from tests.crash.ledger import Origin, decode
from tests.crash.log_workload import COMPACT, KEYS, RUN, TOPICS, places, records_of
from trilogue.log.errors import OffsetOutOfRange
from trilogue.log.segments.sealed import SealedLog

STALE_S = 2.0


class Reader:
    """What must hold from one look at the data to the next."""

    def __init__(self, data: Path) -> None:
        self.sealed = SealedLog(data, open_files=4)  # so that files go while they are read
        self.counts: Counter[str] = Counter()
        self.stale_at = 0.0
        self.ranges: dict[int, tuple[int, int]] = {}

    def look(self) -> None:
        """Read all there is."""
        before = self.sealed.manifest.generation
        is_empty = len(self.sealed.manifest.topics) < len(TOPICS)
        if is_empty or time.monotonic() >= self.stale_at:  # an old one does too, as long as it can
            self.counts["manifests"] += self.sealed.refresh()
            self.stale_at = time.monotonic() + STALE_S
        assert self.sealed.manifest.generation >= before, "the manifest went back"
        self.counts["looks"] += 1
        known = {topic.name: topic.partitions for topic in self.sealed.manifest.topics}
        for number, (topic, partition) in enumerate(places()):
            if topic in known:
                self.read(topic, number, known[topic][partition])

    def read(self, topic: str, number: int, partition_id: int) -> None:
        """One partition, from its start to its end: nothing is missing, nothing is wrong."""
        start, end = self.sealed.range_of(partition_id)
        was_start, was_end = self.ranges.get(partition_id, (0, 0))
        assert start >= was_start, "a start offset went back"
        assert end >= was_end, "a stable end went back"
        self.ranges[partition_id] = start, end
        generation = self.sealed.manifest.generation
        found: list[int] = []
        try:
            for data in self.sealed.read(partition_id, max_bytes=4_000):
                for offset, value in records_of(data, start):
                    assert decode(RUN, value) == Origin(1, number, offset), (topic, offset, value)
                    found.append(offset)
        except OffsetOutOfRange:
            assert self.sealed.range_of(partition_id)[0] > start
            self.counts["overtaken by retention"] += 1
            return
        if self.sealed.manifest.generation != generation:
            self.counts["overtaken"] += 1
            _, end = self.sealed.range_of(partition_id)
        self.counts["messages"] += len(found)
        if topic == COMPACT:
            assert found == sorted(set(found))
            assert set(range(max(start, end - KEYS), end)) <= set(found), "the newest are missing"
        else:
            assert found == list(range(start, end)), (topic, start, end, found[:3], found[-3:])


def main(data: Path, seen: Path, stop: Path) -> None:
    """Look until `stop` is there; `seen` comes when it has looked at enough to judge by."""
    while not (data / "segments" / "manifest.json").exists():
        assert not stop.exists(), "there never was a manifest"
    reader = Reader(data)
    while not stop.exists():
        reader.look()
        counts = reader.counts
        if counts["looks"] >= 5 and counts["messages"] and counts["overtaken"]:
            seen.touch()
    reader.stale_at = 0.0
    reader.look()
    print(json.dumps(reader.counts))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
