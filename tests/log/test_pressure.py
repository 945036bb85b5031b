"""When producers have to wait, by the compiled class and by the uncompiled one."""

from __future__ import annotations

import math

import pytest

from tests.log.rig import Rig
from tests.pure import load_pure
from trilogue.log import log, pressure

KINDS = {"installed": pressure, "uncompiled": load_pure("trilogue.log.pressure")}


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def rig(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setattr(log, "LogPressure", request.param.LogPressure)
    rig = Rig()
    rig.open().partition(1)
    return rig


def test_an_empty_log_has_no_pressure(rig: Rig) -> None:
    assert not rig.log.pressure.is_high()
    assert not rig.log.pressure.is_tail_full()


def test_windows_that_wait_for_the_disk_count_also_while_flushes_are_stuck(rig: Rig) -> None:
    found = rig.log.pressure
    rig.log.journal.queued = rig.log.limits.queued_windows
    assert found.is_high()
    assert not found.is_tail_full()
    found.is_stuck = True
    assert found.is_high()


def test_bytes_of_the_tail_count_unless_flushes_are_stuck(rig: Rig) -> None:
    found, limits = rig.log.pressure, rig.log.limits
    rig.log._budget.used = math.ceil(limits.watermark * limits.tail_bytes)
    assert found.is_high()
    found.is_stuck = True
    assert found.is_tail_full()
    assert not found.is_high()


def test_entries_of_sealed_files_and_of_the_current_one_count(rig: Rig) -> None:
    found, limits = rig.log.pressure, rig.log.limits
    found.sealed_entries = math.ceil(limits.watermark * limits.tail_entries) - 1
    assert not found.is_high()

    rig.append(1)
    rig.loop.run()

    assert found.is_high()
