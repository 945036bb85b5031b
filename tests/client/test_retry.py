"""How long a client waits before it tries again."""

from __future__ import annotations

import random

from trilogue.client.retry import Backoff


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_repeated_failures_back_off_exponentially():
    clock = Clock()
    backoff = Backoff(clock, 0.05, 1.0, random.Random(1))
    assert backoff.remaining_s("a") == 0.0
    waits = []
    for _ in range(8):
        backoff.record_failure("a")
        waits.append(backoff.remaining_s("a"))
        clock.now += waits[-1]
        assert backoff.remaining_s("a") == 0.0

    assert 0.04 <= waits[0] <= 0.06
    assert waits[:5] == sorted(waits[:5])
    assert 0.8 <= waits[-1] <= 1.2
    assert len(set(waits)) == len(waits)  # jitter: those who lost the same server spread out


def test_success_resets_the_backoff_of_its_key_only():
    clock = Clock()
    backoff = Backoff(clock, 0.05, 1.0, random.Random(1))
    for _ in range(8):
        backoff.record_failure("a")
    assert backoff.remaining_s("b") == 0.0
    backoff.record_success("a")
    assert backoff.remaining_s("a") == 0.0
    backoff.record_failure("a")
    assert backoff.remaining_s("a") <= 0.06
