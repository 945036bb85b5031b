"""The commit cycle, compiled and uncompiled: the order of a commit, deferred entries, the end."""

from __future__ import annotations

import pytest

from tests.log.journal.test_journal import frames
from tests.log.rig import Rig
from tests.pure import load_pure
from trilogue.log import log, pressure
from trilogue.log.journal import commit_cycle, journal
from trilogue.log.journal.commit import InlineCommitter
from trilogue.log.journal.frame import CLEAN

KINDS = {
    "installed": (commit_cycle, pressure),
    "uncompiled": (
        load_pure("trilogue.log.journal.commit_cycle"),
        load_pure("trilogue.log.pressure"),  # the compiled one takes no other cycle
    ),
}
DEFERRED = 2


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def rig(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Rig:
    cycles, pressures = request.param
    monkeypatch.setattr(journal, "CommitCycle", cycles.CommitCycle)
    monkeypatch.setattr(log, "LogPressure", pressures.LogPressure)
    rig = Rig()
    rig.open().partition(DEFERRED).acks_from_memory = True
    return rig


def test_the_next_commit_starts_before_the_callbacks_of_the_last(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[object] = []
    submit = InlineCommitter.submit

    def submitted(committer: InlineCommitter, *job: object) -> None:
        events.append("write")
        submit(committer, *job)

    def failing(_: object) -> None:
        events.append(("first", partition.high_watermark))
        raise ValueError("a callback failed")

    monkeypatch.setattr(InlineCommitter, "submit", submitted)
    rig.restart()  # the journal reads `submit` once
    engine, partition = rig.log.journal, rig.log.partition(1)
    rig.append(1)
    engine.on_commit(failing)
    engine.on_commit(lambda _: events.append(("second", partition.high_watermark)))
    rig.loop.turn()
    rig.append(1)
    engine.on_commit(lambda _: events.append(("third", partition.high_watermark)))
    rig.loop.run()

    assert events == ["write", "write", ("first", 1), ("second", 1), ("third", 2)]
    assert (engine.counts.commits, engine.counts.entries, engine.counts.facts) == (2, 2, 0)
    assert engine.counts.bytes_written == 2 * 4096
    assert engine.durable_through == engine.last_sequence == 2


def test_deferred_entries_are_committed_with_others(rig: Rig) -> None:
    deferred, partition = rig.log.partition(DEFERRED), rig.log.partition(1)
    rig.append(DEFERRED)
    rig.loop.run()
    assert (deferred.high_watermark, rig.log.journal.counts.commits) == (0, 0)

    rig.append(1)
    rig.loop.run()

    assert (deferred.high_watermark, partition.high_watermark) == (1, 1)
    assert rig.log.journal.counts.commits == 1


def test_deferred_entries_start_one_interval(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = rig.log.journal
    started: list[int] = []
    start = engine.start_interval

    def note() -> None:
        started.append(engine.counts.commits)
        start()

    monkeypatch.setattr(engine, "start_interval", note)
    for _ in range(2):
        for _ in range(5):
            rig.append(DEFERRED)
        rig.loop.pass_time(engine.limits.interval_s)
        rig.loop.run()

    assert started == [0, 1]
    assert (engine.counts.commits, engine.counts.entries) == (2, 10)


def test_a_commit_calls_the_log_only_where_something_waits_for_room(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[int] = []
    release = rig.log._released
    relieved: list[bool] = []
    monkeypatch.setattr(rig.log, "_released", lambda: called.append(1) or release())
    rig.append(1)
    rig.loop.run()
    assert called == []

    rig.log.on_relief(lambda: relieved.append(True))
    rig.loop.run()
    rig.append(1)
    rig.loop.run()

    assert (len(called), relieved) == (1, [True])


def test_the_end_writes_what_was_appended_and_a_clean_frame(rig: Rig) -> None:
    rig.append(1)
    rig.loop.turn()  # the write has ended, and was not reported
    rig.append(1)
    rig.append(DEFERRED)

    rig.log.close()

    found = frames(rig)
    assert [frame.entry_count for frame in found] == [1, 2, 0]
    assert [frame.flags for frame in found] == [0, 0, CLEAN]
    assert rig.log.journal.is_idle
