"""Full collections run when `collect` is called, and find garbage."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from trilogue.node import garbage_collector as collector


class Knot:
    """Garbage that only the collector can find."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    gc.enable()


def test_new_garbage_is_collected_and_live_objects_are_frozen() -> None:
    collector.configure()
    knot = Knot()
    seen = weakref.ref(knot)
    del knot

    collector.collect(whole=False)

    assert seen() is None
    assert gc.get_threshold()[2] == collector.NEVER


def test_old_garbage_goes_when_everything_is_looked_at() -> None:
    knot = Knot()
    seen = weakref.ref(knot)
    collector.configure()
    del knot
    collector.collect(whole=False)
    assert seen() is not None, "it was set aside while in use"

    collector.collect(whole=True)

    assert seen() is None
