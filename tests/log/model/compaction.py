"""Compacted partitions in the model: what may be missing of what was written, and what must be.

Their entries are real batches with few keys, so that most messages are soon superseded.
"""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.log.model.machine import SEEDS, TROUBLE, Batch
from tests.log.model.model import base_of, end_of, epoch_of
from tests.log.model.node import COMPACTED, Trouble
from tests.log.model.work import IN_HELPER, WorkingMachine
from trilogue.entry.entry import Record
from trilogue.entry.kafka.record_batch import build_batch, iter_records

KEYS = 5
Message = tuple[bytes | None, bytes | None]


class CompactingMachine(WorkingMachine):
    """Everything together."""

    @precondition(lambda self: self.node.compacted & self.model.parts.keys())
    @rule(hold=st.booleans(), trouble=TROUBLE | IN_HELPER, seed=SEEDS)
    def compact(self, hold: bool, trouble: Trouble, seed: int) -> None:
        """Get something to compact, and do it, or end the job that is held."""
        batches = [Batch(at, 600, 3, 2, 0) for at in range(len(self.model.parts))]
        if self.attempt(lambda: self.append_all(batches)):
            self.flush(Trouble(), 0)
            self.notice()  # or a power cut would find compacted what the model only hopes for
        self.work_on(None, hold, trouble, seed, compact=True)
        assert not self.node.compacting.damaged

    def entry_of(self, batch: Batch, partition_id: int, number: int) -> memoryview:
        if partition_id not in self.node.compacted:
            return super().entry_of(batch, partition_id, number)
        records = []
        for at in range(batch.span):
            key = (self.fill + at * at) % KEYS
            value = None if (self.fill + at) % 4 == 0 else bytes(batch.size // batch.span)
            record = Record(at, batch.event_ms + number + 1, b"key %d" % key, value)
            records.append(record)
        return memoryview(build_batch(records))

    # -- what is left ----------------------------------------------------------------------

    def as_written(self, partition_id: int, entries: list[bytes]) -> list[bytes]:
        """Check what compaction left, and return what was there before it."""
        if partition_id not in self.node.compacted:
            return entries
        part = self.model.parts[partition_id]
        below, above = self.cut(partition_id, entries)
        written, _ = self.cut(partition_id, part.since(0))
        left = self.check_some(partition_id, below)
        last = {key: offset for offset, (key, _) in sorted(messages(written).items())}
        assert {each for each in left if each >= part.start} <= set(last.values()), "superseded"
        needed = self.needed(partition_id, written, last)
        assert needed <= left.keys(), "the last message of a key is gone"
        return written + above

    def cut(self, partition_id: int, entries: list[bytes]) -> tuple[list[bytes], list[bytes]]:
        """Entries below the end of compaction, and those behind it."""
        end = self.node.state.partitions[partition_id].compacted_end
        below = [each for each in entries if end_of(each) <= end]
        above = entries[len(below) :]
        assert all(base_of(each) >= end for each in above)
        return below, above

    def needed(
        self, partition_id: int, written: list[bytes], last: dict[bytes | None, int]
    ) -> set[int]:
        """Offsets that must be there: the last of each key, unless it is an old tombstone."""
        now_ms, kept = self.node.loop.time_ms, set()
        for entry in written:
            base = base_of(entry)
            due_ms = self.appended_ms[partition_id, base] + COMPACTED.delete_retention_ms
            for offset, (key, value) in messages([entry]).items():
                if last[key] == offset and (value is not None or now_ms < due_ms):
                    kept.add(offset)
        return kept

    def check_some(self, partition_id: int, entries: list[bytes]) -> dict[int, Message]:
        """Whatever is there has its place and its bytes; returns the messages by offset."""
        part = self.model.parts.get(partition_id)
        if part is None:
            return {}
        written = {base_of(each): each for each in part.entries}
        ends = [0, *map(end_of, entries)]
        for end, entry in zip(ends, entries, strict=False):
            before = written[base_of(entry)]
            assert base_of(entry) >= end
            assert (end_of(entry), epoch_of(entry)) == (end_of(before), epoch_of(before))
            there, was = messages([entry]), messages([before])
            assert there.items() <= was.items()
        return messages(entries)


def messages(entries: Iterable[bytes]) -> dict[int, Message]:
    return {
        record.offset: (record.key, record.value)
        for entry in entries
        for record in iter_records(entry)
    }
