"""Appends of a partition: the compiled and the uncompiled version write the same bytes."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tests.pure import load_pure
from trilogue.entry.entry import Record
from trilogue.entry.kafka.record_batch import build_batch, read_header
from trilogue.log import partition_appender
from trilogue.log.errors import DiskFull
from trilogue.log.journal import append_buffer, window
from trilogue.log.tail import append_times, tail
from trilogue.log.tail.chunks import Budget

CAPACITY = 4096  # of a window: the smallest


def uncompiled() -> SimpleNamespace:
    """The modules of an append, each on top of the uncompiled ones below it."""
    loaded: dict[str, ModuleType] = {}
    for name in (
        "trilogue.log.journal.window",
        "trilogue.log.journal.append_buffer",
        "trilogue.log.tail.append_times",
        "trilogue.log.tail.tail",
        "trilogue.log.partition_appender",
    ):
        loaded[name] = load_pure(name, **{key.replace(".", "__"): loaded[key] for key in loaded})
    return SimpleNamespace(**{name.rpartition(".")[2]: module for name, module in loaded.items()})


INSTALLED = SimpleNamespace(
    window=window,
    append_buffer=append_buffer,
    append_times=append_times,
    tail=tail,
    partition_appender=partition_appender,
)
PURE = uncompiled()
BOTH = pytest.mark.parametrize("modules", [INSTALLED, PURE], ids=["installed", "pure"])


def entry(size: int) -> memoryview:
    return memoryview(build_batch([Record(0, 1_000 + size, None, b"x" * size)]))


class Scheduler:
    """The journal of an append buffer: it replaces full windows and records what was requested."""

    def __init__(self, modules: SimpleNamespace) -> None:
        self._window = modules.window.Window
        self.windows = [self._window(CAPACITY)]
        self.calls: list[object] = []
        self.buffer = modules.append_buffer.AppendBuffer(self, self.windows[0])

    def refuse(self):
        raise DiskFull("full")

    def replace_window(self, size, size_max):
        self.calls.append(("replace", size, size_max))
        self.buffer.window.close()
        self.windows.append(self._window(CAPACITY))
        self.buffer.window = self.windows[-1]
        return self.buffer.window

    def schedule_commit(self, deferred):
        self.calls.append(("schedule", deferred))
        self.buffer.is_scheduled = not deferred

    def wait_for_commit(self, callback):
        self.calls.append("wait")


def partitions_of(modules: SimpleNamespace, scheduler: Scheduler) -> list:
    budget = Budget(1 << 20, lambda: None)
    return [
        modules.partition_appender.PartitionAppender(
            number,
            3,
            end_offset=10 * number,
            buffer=scheduler.buffer,
            tail=modules.tail.Tail(budget),
        )
        for number in (1, 2)
    ]


def state(scheduler: Scheduler, partitions: list) -> list[object]:
    windows = [(bytes(each.view), each.used, each.entry_count) for each in scheduler.windows]
    offsets = [
        (
            each.end_offset,
            each.high_watermark,
            each.previous_watermark,
            each.durable_position,
            each.tail_formats,
            each.tail.max_timestamp(each.tail.end),
            b"".join(each.tail.slices(0, each.tail.end)),
            each.append_times.newest,
        )
        for each in partitions
    ]
    return [windows, offsets, scheduler.calls]


@given(steps=some.lists(some.tuples(some.integers(0, 1), some.integers(0, 900)), max_size=30))
def test_twins_put_the_same_bytes_in_place(steps):
    states = []
    for modules in (INSTALLED, PURE):
        scheduler = Scheduler(modules)
        partitions = partitions_of(modules, scheduler)
        for number, size in steps:
            batch = entry(size)
            partitions[number].append(batch, read_header(batch))
            scheduler.buffer.on_commit(lambda _: None)
        for each in scheduler.windows:
            each.close()
            each.append_time_ms = 77
            each.advance()
        states.append(state(scheduler, partitions))

    assert states[0] == states[1]


@BOTH
def test_twins_refuse_before_anything_happens(modules):
    scheduler = Scheduler(modules)
    partitions = partitions_of(modules, scheduler)
    before = state(scheduler, partitions)
    scheduler.buffer.refusal = DiskFull("full")
    batch = entry(3)

    with pytest.raises(DiskFull):
        partitions[0].append(batch, read_header(batch))

    assert state(scheduler, partitions) == before


@BOTH
def test_one_reader_s_mistake_keeps_no_other_waiting(modules):
    called: list[int] = []
    partition = partitions_of(modules, Scheduler(modules))[0]
    partition.watchers = {1: lambda: 1 / 0, 2: lambda: called.append(1)}

    partition.wake()

    assert called == [1]
    assert not partition.watchers


@BOTH
def test_an_entry_of_another_length_is_written_nowhere(modules):
    partition = partitions_of(modules, Scheduler(modules))[0]
    batch = entry(9)

    with pytest.raises(ValueError, match=r"room|assignment"):
        partition.tail.append(batch, len(batch) - 1, 0, 3, 5)

    assert partition.tail.size == 0


@BOTH
def test_an_entry_larger_than_the_window_is_written_nowhere(modules):
    made = modules.window.Window(CAPACITY)

    with pytest.raises(ValueError, match=r"room|assignment"):
        made.add_entry(1, 3, memoryview(bytes(CAPACITY)))

    assert made.is_empty
    assert not any(made.view)
