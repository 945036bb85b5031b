"""A node that lives through anything, compared with the model after each step.

This part writes, ends and begins again; reading.py looks, work.py does what a node does
in the background. A step is one rule; most of them may be hit by trouble (see node.py).
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import ClassVar, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.fakes import PowerCut
from tests.log.model.model import FACTS, Model, Part, end_of, split
from tests.log.model.node import CALM, ENDINGS, ERRORS, FACT_KIND, Node, Trouble
from tests.log.rig import header_of, make_entry
from trilogue.log.errors import DiskFull, StorageFailed, TailFull
from trilogue.log.partition_log import PartitionLog, SegmentSlice, TailSlice

PARTITIONS_MAX = 6
NEVER = 1 << 62
SIZES = (61, 61, 100, 1000, 5000, 9000, 40_000)  # bytes of an entry; a window has 32 KiB
SEEDS = st.integers(0, 2**16)
WHICH = st.integers(0, PARTITIONS_MAX - 1)  # of the partitions that there are
TURNS = st.integers(0, 3)  # of the loop, afterwards: commits overlap, or are done
WHEN = st.integers(0, 4) | st.integers(0, 16)  # steps of the disk, until trouble comes
ENDS = st.builds(Trouble, st.sampled_from(ENDINGS), WHEN)
TROUBLES = (
    ENDS
    | st.builds(Trouble, st.sampled_from(["EIO", "ENOSPC"]), WHEN)
    | st.builds(Trouble, st.just("meta"))
)
TROUBLE = st.just(CALM) | TROUBLES
AGAIN = st.lists(TROUBLES, max_size=2)


class Steps:
    """How many there were, and what came of them."""

    count: ClassVar[int] = 0
    histories: ClassVar[int] = 0
    events: ClassVar[Counter[str]] = Counter()


class Batch(NamedTuple):
    """Some entries for one partition."""

    which: int
    size: int
    span: int
    copies: int
    event_ms: int


BATCHES = st.lists(
    st.builds(
        Batch,
        which=WHICH,
        size=st.sampled_from(SIZES),
        span=st.integers(1, 5),
        copies=st.integers(1, 6),
        event_ms=st.integers(-1, 50),
    ),
    min_size=1,
    max_size=3,
)


class Machine(RuleBasedStateMachine):
    """What all rules need, and those that write and restart."""

    def __init__(self) -> None:
        super().__init__()
        self.node = Node()
        self.model = Model()
        self.waiting: deque[int] = deque()  # how many entries were pending at each `on_commit`
        self.fill = 0
        self.failed_from = NEVER  # the first callback that reported a failure in this life
        self.problems: list[AssertionError] = []  # in callbacks
        self.hurt = False  # an error was arranged in this life
        self.acks_from_memory: set[int] = set()  # partitions with such appends
        self.appended_ms: dict[tuple[int, int], int] = {}  # partition, base offset -> not before
        self.wanted_starts: dict[int, int] = {}
        self.may_start: dict[int, set[int]] = {}  # where retention may let partitions start
        self.coming: set[int] = set()  # partitions that are being made, or deleted

    @initialize(direct=st.booleans(), count=st.integers(1, 3))
    def begin(self, direct: bool, count: int) -> None:
        Steps.histories += 1
        Steps.count -= 1  # this is none
        self.node.fs.direct = direct
        self.open()
        for _ in range(count):
            self.create(1, CALM, 0)

    # -- lives -----------------------------------------------------------------------------

    def open(self, again: tuple[Trouble, ...] = (), seed: int = 0) -> None:
        """Start, as often as it is ended or refused meanwhile, and compare."""
        self.let_go()
        self.waiting.clear()
        self.failed_from, self.hurt = NEVER, False
        for trouble in (*again, CALM):
            self.node.fs.arrange(trouble)
            try:
                self.node.open()
                break
            except PowerCut:
                Steps.events[f"open, {trouble.kind}"] += 1
                self.end_process(trouble, seed)
            except (OSError, StorageFailed, DiskFull):
                assert trouble.kind in ERRORS
                self.node.fs.kill()
        self.node.fs.arrange(CALM)
        self.follow_meta()
        found = {each: self.entries_of(each) for each in self.model.parts}
        self.model.recovered(found, self.node.broker.in_order)
        for each in self.acks_from_memory & self.model.parts.keys():
            self.node.log.partition(each).acks_from_memory = True

    def follow_meta(self) -> None:
        """What was being done to partitions when a process ended has happened or has not."""
        states = self.node.state.partitions
        assert states.keys() ^ self.model.parts.keys() <= self.coming
        for each in states.keys() - self.model.parts.keys():
            self.model.parts[each] = Part()
        for each in self.model.parts.keys() - states.keys():
            del self.model.parts[each]
        self.coming.clear()
        for each, part in self.model.parts.items():
            start = states[each].start_offset
            wanted = {part.start, self.wanted_starts.get(each), *self.may_start.get(each, ())}
            assert part.start <= start, "a start moved back"
            assert start in wanted, "a start moved by itself"
            part.start = start
            assert self.node.log.partition(each).start_offset == start
        self.wanted_starts.clear()

    def end_process(self, trouble: Trouble, seed: int) -> None:
        if trouble.kind == "power":
            self.node.fs.power_cut(Random(seed))
        else:
            self.node.fs.kill()

    def attempt(self, action: Callable[[], object], trouble: Trouble = CALM, seed: int = 0) -> bool:
        """Run an action; return whether it completed. Restart the node if the process died."""
        node, events = self.node, Steps.events
        what = sys._getframe(1).f_code.co_name
        node.fs.arrange(trouble)
        self.hurt |= trouble.kind in ERRORS
        refused = False
        try:
            action()
            struck = "well" if trouble == CALM or node.fs.trouble != CALM else trouble.kind
            events[f"{what}, {struck}"] += 1
        except PowerCut:
            events[f"{what}, {trouble.kind}"] += 1
            self.end_process(trouble, seed)
            self.open((), seed)
            return False
        except (DiskFull, TailFull):  # the tail, the queue of windows, or the disk: refused
            events[f"{what}, refused"] += 1
            refused = True
            self.follow_meta()
        except (OSError, StorageFailed):
            assert self.hurt, "an error out of nothing"
            events[f"{what}, {trouble.kind}"] += 1
            node.fs.kill()
            self.open()
            return False
        finally:
            node.fs.arrange(CALM)
        if node.failures:
            assert self.hurt, "a failure out of nothing"
            self.end_process(Trouble(ENDINGS[seed % 2]), seed)
            self.open()
            return False
        return not refused

    def turn(self, turns: int) -> None:
        for _ in range(turns):
            self.attempt(self.node.loop.turn)

    # -- pending and acknowledged entries --------------------------------------------------

    def hope(self, partition_id: int, data: bytes) -> None:
        self.model.hoped.append((partition_id, data))
        if partition_id in self.acks_from_memory:
            return
        target = self.model.acknowledged + len(self.model.hoped)
        self.waiting.append(target)
        is_fact = partition_id == FACTS
        self.node.log.journal.on_commit(
            partial(self.note_outcome, target, data if is_fact else None)
        )

    def note_outcome(self, target: int, fact: bytes | None, outcome: StorageFailed | None) -> None:
        try:
            self.on_durable(target, fact, outcome)
        except AssertionError as error:  # the journal logs what its callers do wrong, and goes on
            self.problems.append(error)

    def on_durable(self, target: int, fact: bytes | None, outcome: StorageFailed | None) -> None:
        """Of what was written in order, a first part is acknowledged and the rest fails."""
        self.waiting.remove(target)
        if outcome is not None:
            assert isinstance(outcome, StorageFailed)
            self.failed_from = min(target, self.failed_from)
            assert self.model.acknowledged < self.failed_from, "failed after it was acknowledged"
            return
        assert target < self.failed_from, "acknowledged after an error"
        assert not [each for each in self.waiting if each < target], "reported out of order"
        while self.model.acknowledged < target:
            self.model.ack()
        if fact is not None:
            self.node.broker.apply(FACT_KIND, fact)

    def notice(self) -> None:
        """Acknowledge entries of partitions with `acks_from_memory` when they can be read."""
        model = self.model
        while model.hoped and model.hoped[0][0] in self.acks_from_memory:
            partition_id, data = model.hoped[0]
            known = self.node.log.partition(partition_id) if partition_id in model.parts else None
            if known is not None and known.high_watermark < end_of(data):
                return
            model.ack()

    def pick(self, which: int) -> int:
        known = sorted(self.model.parts)
        return known[which % len(known)]

    def entries_of(self, partition_id: int) -> list[bytes]:
        partition = self.node.log.partition(partition_id)
        offset, entries = partition.start_offset, []
        while offset < partition.high_watermark:
            found = partition.read(offset, 1 << 30)
            part = split(bytes_of(found))
            if part:
                entries += part
                offset = end_of(part[-1])
            else:
                assert partition_id in self.node.compacted, "nothing below the high watermark"
                assert isinstance(found, SegmentSlice)
                offset = found.next_offset
        return self.as_written(partition_id, entries)

    def as_written(self, partition_id: int, entries: list[bytes]) -> list[bytes]:
        """What was there before compaction took some of it; more in compaction.py."""
        assert partition_id not in self.node.compacted
        return entries

    def let_go(self) -> None:
        """Forget views of memory and plans; more in reading.py."""

    # -- rules that write ------------------------------------------------------------------

    @precondition(lambda self: self.model.parts)
    @rule(batches=BATCHES, turns=TURNS, trouble=TROUBLE, seed=SEEDS)
    def append(self, batches: list[Batch], turns: int, trouble: Trouble, seed: int) -> None:
        self.attempt(partial(self.append_all, batches), trouble, seed)
        self.turn(turns)

    @precondition(lambda self: self.model.parts)
    @rule(batches=BATCHES, trouble=TROUBLE, seed=SEEDS)
    def append_and_run(self, batches: list[Batch], trouble: Trouble, seed: int) -> None:
        def action() -> None:
            self.append_all(batches)
            self.node.loop.run()

        self.attempt(action, trouble, seed)

    def append_all(self, batches: list[Batch]) -> None:
        for batch in batches:
            partition = self.node.log.partition(self.pick(batch.which))
            for number in range(batch.copies):
                self.fill += 1
                self.append_one(partition, self.entry_of(batch, partition.partition_id, number))

    def entry_of(self, batch: Batch, _partition_id: int, number: int) -> memoryview:
        time_ms = batch.event_ms + number
        return make_entry(batch.size, span=batch.span, fill=self.fill, time_ms=time_ms)

    def append_one(self, partition: PartitionLog, entry: memoryview) -> None:
        expected, partition_id = partition.end_offset, partition.partition_id
        stamp = expected.to_bytes(8, "big") + bytes(entry[8:12])
        data = stamp + partition.owner_epoch.to_bytes(4, "big") + bytes(entry[16:])
        self.appended_ms[partition_id, expected] = self.node.loop.time_ms
        try:
            assert partition.append(entry, header_of(entry)) == expected
        finally:  # a power cut inside may have written it
            if partition.end_offset != expected:
                self.hope(partition_id, data)

    @rule(size=st.integers(0, 300), turns=TURNS, trouble=TROUBLE, seed=SEEDS)
    def add_fact(self, size: int, turns: int, trouble: Trouble, seed: int) -> None:
        def action() -> None:
            self.fill += 1
            payload = self.fill.to_bytes(4, "big") + bytes(size)
            self.node.log.journal.add_fact(FACT_KIND, payload)
            self.hope(FACTS, payload)

        self.attempt(action, trouble, seed)
        self.turn(turns)

    @rule(what=st.sampled_from(["run", "work", "seal"]), trouble=TROUBLE, seed=SEEDS)
    def go_on(self, what: str, trouble: Trouble, seed: int) -> None:
        """Let the loop run, work in the background happen, or the journal's file end."""

        def run() -> None:
            self.node.loop.run()
            assert not self.waiting, "nothing is left to do, and not all is reported"

        actions = {"run": run, "work": self.node.loop.work, "seal": self.node.log.seal}
        self.attempt(actions[what], trouble, seed)

    @rule(seconds=st.sampled_from([0.05, 0.1, 30.0]), trouble=TROUBLE, seed=SEEDS)
    def pass_time(self, seconds: float, trouble: Trouble, seed: int) -> None:
        """Deferred entries become durable when the interval ends."""

        def action() -> None:
            self.node.loop.pass_time(seconds)
            self.node.log.seal(self.node.loop.now_ms())
            self.node.loop.run()
            self.notice()
            done = self.node.failures or not self.model.hoped
            assert done or seconds < 0.1, "it lies for too long"

        self.attempt(action, trouble, seed)

    # -- rules that make and delete partitions ---------------------------------------------

    @rule(which=WHICH, count=st.integers(1, 2), trouble=ENDS | st.just(CALM), seed=SEEDS)
    def make_or_delete(self, which: int, count: int, trouble: Trouble, seed: int) -> None:
        if len(self.model.parts) > which + 2:
            self.drop(which, trouble, seed)
        elif len(self.model.parts) < PARTITIONS_MAX:
            self.create(count, trouble, seed)

    def create(self, count: int, trouble: Trouble, seed: int) -> None:
        meta = self.node.meta
        assert meta is not None
        made = tuple(meta.allocate("partition") for _ in range(count))
        self.coming.update(made)
        self.node.compacted.update(each for each in made if each % 3 == 2)

        def action() -> None:
            self.node.create(made)
            self.follow_meta()

        self.attempt(action, trouble, seed)

    def drop(self, which: int, trouble: Trouble, seed: int) -> None:
        partition_id = self.pick(which)
        topic_id = self.node.state.partitions[partition_id].topic_id
        states = self.node.state.partitions.items()
        self.coming.update(each for each, state in states if state.topic_id == topic_id)

        def action() -> None:
            self.node.drop(partition_id)
            self.follow_meta()

        self.attempt(action, trouble, seed)

    @precondition(lambda self: self.model.parts)
    @rule(which=WHICH)
    def change_patience(self, which: int) -> None:
        partition_id = self.pick(which)
        if any(each == partition_id for each, _ in self.model.hoped):
            return  # the model does not know who waits for what then
        self.acks_from_memory ^= {partition_id}
        self.node.log.partition(partition_id).acks_from_memory = (
            partition_id in self.acks_from_memory
        )

    # -- rules that end a process ----------------------------------------------------------

    @rule(
        how=st.sampled_from([*ENDINGS, "shut", "write", "sync", "flip"]),
        again=AGAIN,
        trouble=ENDS,
        where=st.floats(0, 1, exclude_max=True),
        seed=SEEDS,
    )
    def restart(
        self, *, how: str, again: list[Trouble], trouble: Trouble, where: float, seed: int
    ) -> None:
        """End it and start it again, in which it may be ended again and again."""
        if how == "shut":
            self.shut(trouble, seed)
        elif how == "flip":
            self.flip_in_the_journal(where, seed)
        elif how in {"write", "sync"}:
            self.fail_a_commit(how, seed)
        else:
            self.end_process(Trouble(how), seed)
            self.open(tuple(again), seed)

    def flip_in_the_journal(self, where: float, seed: int) -> None:
        """More in reading.py."""

    def shut(self, trouble: Trouble, seed: int) -> None:
        def action() -> None:
            self.node.shut()
            self.notice()
            gone = [each for each, _ in self.model.hoped if each in self.model.parts or not each]
            assert self.node.failures or not gone, "shut in order, and not all of it is durable"
            self.open()

        self.attempt(action, trouble, seed)

    def fail_a_commit(self, what: str, seed: int) -> None:
        """Nothing is acknowledged any more, the process ends, another goes on."""
        node = self.node
        self.attempt(node.loop.run)
        self.notice()
        node.log.journal.add_fact(FACT_KIND, (self.fill + 1).to_bytes(4, "big"))
        self.fill += 1
        self.hope(FACTS, self.fill.to_bytes(4, "big"))
        acknowledged = self.model.acknowledged
        node.fs.fail(what)
        node.loop.run()
        assert (self.model.acknowledged, len(node.failures), self.waiting) == (
            acknowledged,
            1,
            deque(),
        )
        for refused in (node.log.journal.add_fact, self.append_anything):
            try:
                refused(FACT_KIND, b"")
            except StorageFailed:
                continue
            raise AssertionError("taken after a failure")
        self.end_process(Trouble(ENDINGS[seed % 2]), seed)
        self.open()

    def append_anything(self, *_: object) -> None:
        if not self.model.parts:
            raise StorageFailed
        entry = make_entry()
        self.node.log.partition(self.pick(0)).append(entry, header_of(entry))


def bytes_of(found: TailSlice | SegmentSlice) -> bytes:
    return bytes(found.run()) if isinstance(found, SegmentSlice) else b"".join(found.slices)
