"""The log's transactions, epochs and append times, against a naive reading of all entries.

Producers write in and outside of transactions, markers end what is open or nothing, clocks jump,
files are sealed and flushed, segments merged and cut, the process dies and restarts, retention
goes on.

After every step stable end, aborted transactions, ends of epochs and searches by append time equal
the result of a naive reading of everything that is durable.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.log.ledger import (
    Ledger,
    Written,
    data,
    flush_job,
    marker,
    merge_job,
    record,
    retain,
)
from tests.log.rig import Rig, header_of
from trilogue.entry.control import Outcome
from trilogue.entry.walk import walk_headers
from trilogue.log.jobs.flush import flush
from trilogue.log.jobs.merge import merge
from trilogue.log.partition_log import AbortedLookup, SegmentSlice
from trilogue.log.partition_lookups import SegmentLookup
from trilogue.log.segments.segment import AbortedTransaction

PARTITIONS = (1, 2)
where = st.sampled_from([1, 1, 1, 2])
deeds = st.lists(  # of a producer: to write, or to end its transaction
    st.tuples(st.sampled_from([7, 7, 8, 9]), st.sampled_from([None, None, *Outcome])), min_size=1
)
soon = st.booleans()  # whether it is durable at once


class TransactionMachine(RuleBasedStateMachine):
    """One node's life, or several."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(partitions=len(PARTITIONS))
        self.ledgers = {each: Ledger() for each in PARTITIONS}
        self.open()

    def open(self) -> None:
        self.rig.open()
        for each, ledger in self.ledgers.items():
            end = self.rig.log.partition(each).high_watermark
            assert end >= ledger.end
            for written in ledger.entries:  # frames may have come through unacknowledged
                if written.append_ms < 0 and written.end <= end:
                    written.append_ms = self.rig.loop.time_ms
            ledger.entries = ledger.durable
            assert end == ledger.end
            ledger.owner = (self.rig.epoch, end)

    def append(
        self,
        partition_id: int,
        entry: bytes,
        producer: int | None,
        outcome: Outcome | None,
        at_once: bool,
    ) -> None:
        view = memoryview(entry)
        header = header_of(view)
        base = self.rig.log.partition(partition_id).append(view, header)
        ledger = self.ledgers[partition_id]
        ledger.entries.append(Written(base, header.span, producer, outcome, self.rig.epoch))
        self.rig.log.journal.on_commit(lambda _: None)
        if at_once:
            self.commit()

    def commit(self) -> None:
        self.rig.loop.run()
        for ledger in self.ledgers.values():
            for each in ledger.entries:
                if each.append_ms < 0:
                    each.append_ms = self.rig.loop.time_ms

    # -- rules -----------------------------------------------------------------------------

    @rule(
        partition_id=where, count=st.integers(1, 3), at_once=soon, size=st.sampled_from([9, 7000])
    )
    def write(self, partition_id: int, count: int, at_once: bool, size: int) -> None:
        self.append(partition_id, data(None, count, size=size), None, None, at_once)

    @rule(partition_id=where, deeds=deeds, at_once=soon)
    def transact(
        self, partition_id: int, deeds: list[tuple[int, Outcome | None]], at_once: bool
    ) -> None:
        for producer, outcome in deeds:
            entry = data(producer) if outcome is None else marker(producer, outcome)
            self.append(partition_id, entry, producer, outcome, at_once)

    @rule(seconds=st.integers(-30, 30))
    def clock(self, seconds: int) -> None:
        self.commit()
        self.rig.loop.time_ms += seconds * 1000

    @rule()
    def seal(self) -> None:
        self.commit()
        self.rig.log.seal()
        self.rig.loop.work()

    @rule(apply=st.sampled_from([True, True, False]), files=st.integers(1, 3))
    def flush(self, apply: bool, files: int) -> None:
        if not self.rig.log.sealed:
            self.seal()
        if not self.rig.log.sealed:
            return
        result = flush(flush_job(self.rig, files=files), self.rig.fs)
        record(self.rig, result)
        if apply:
            self.rig.log.apply_flush(result)
        else:
            self.restart()

    @precondition(lambda self: len(self.rig.segments) > 1)
    @rule(own_bytes=st.sampled_from([1, 1 << 30]), target_bytes=st.sampled_from([1, 500, 1 << 30]))
    def merge(self, own_bytes: int, target_bytes: int) -> None:
        """All into one, or cut anywhere."""
        job = merge_job(self.rig, own_bytes=own_bytes, target_bytes=target_bytes)
        swap = merge(job, self.rig.fs).swap(job)
        assert not swap.changed
        self.rig.segments = list(swap.added)
        self.rig.log.apply_swap(swap)

    @rule()
    def restart(self) -> None:
        self.rig.fs.kill()
        time_ms = self.rig.loop.time_ms
        self.open()
        self.rig.loop.time_ms = time_ms

    @rule(partition_id=where, share=st.sampled_from([0.2, 0.5, 1]))
    def retain(self, partition_id: int, share: float) -> None:
        ledger = self.ledgers[partition_id]
        ledger.start += round((ledger.end - ledger.start) * share)
        retain(self.rig, partition_id, ledger.start)

    # -- what must hold --------------------------------------------------------------------

    @invariant()
    def agrees(self) -> None:
        for each, ledger in self.ledgers.items():
            partition = self.rig.log.partition(each)
            assert partition.stable_end == ledger.stable_end()
            self.committed_readers_agree(each, ledger)
            for epoch in range(-1, self.rig.epoch + 2):
                found = partition.epoch_end(epoch)
                found = found.run() if isinstance(found, SegmentLookup) else found
                assert found == ledger.epoch_end(epoch), f"epoch {epoch}"
            times = {written.append_ms for written in ledger.durable}
            for time_ms in {*times, *(time_ms + 1 for time_ms in times)}:
                self.misses_nothing(each, ledger, time_ms)

    def committed_readers_agree(self, partition_id: int, ledger: Ledger) -> None:
        """Read everything, entry by entry, as Kafka's read_committed does."""
        partition = self.rig.log.partition(partition_id)
        offset, until = partition.start_offset, partition.stable_end
        seen: list[int] = []
        while offset < until:
            found = partition.read(offset, 1, until=until)
            entries = found.run() if isinstance(found, SegmentSlice) else b"".join(found.slices)
            walked = walk_headers(entries)
            assert walked, "nothing below the stable end"
            end = walked[-1][2] + walked[-1][3] + 1
            assert isinstance(found, SegmentSlice) or found.next_offset == end
            assert end <= until
            seen += [base for _, _, base, *_ in walked]
            assert self.aborted(partition_id, offset, end) == ledger.aborted(offset, end)
            offset = end
        wanted = [w.base for w in ledger.durable if ledger.start < w.end <= until]
        assert seen == wanted
        start = partition.start_offset
        assert self.aborted(partition_id, start, until) == ledger.aborted(start, until)
        whole = partition.read(start, 1 << 30, until=until)
        entries = whole.run() if isinstance(whole, SegmentSlice) else b"".join(whole.slices)
        assert [each[2] for each in walk_headers(entries)] == wanted[: len(walk_headers(entries))]

    def aborted(self, partition_id: int, start: int, end: int) -> list[AbortedTransaction]:
        found = self.rig.log.partition(partition_id).aborted(start, end)
        return found.run(end) if isinstance(found, AbortedLookup) else found

    def misses_nothing(self, partition_id: int, ledger: Ledger, time_ms: int) -> None:
        partition = self.rig.log.partition(partition_id)
        for from_offset in (None, (ledger.start + ledger.end) // 2):
            found = partition.offset_for_append_time(time_ms, from_offset)
            found = found.run() if isinstance(found, SegmentLookup) else found
            first = ledger.first_appended(time_ms, from_offset or 0)
            if first is not None:
                assert found is not None
                assert found <= first
            if found is not None:
                assert max(ledger.start, from_offset or 0) <= found < ledger.end


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(max_examples=24, stateful_step_count=40, deadline=None)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_many_histories_new_ones_each_time():
    many = settings(
        max_examples=1000, stateful_step_count=60, deadline=None, derandomize=False, database=None
    )
    run_state_machine_as_test(TransactionMachine, settings=many)
