"""The loop's lag."""

from __future__ import annotations

import asyncio
import time

from trilogue.node.metrics.measurements import LoopLag


def test_quantile_is_what_that_share_does_not_exceed():
    lag = LoopLag(time.monotonic)
    for value in range(100):
        lag.record(float(value))

    assert lag.quantile_s(0.5) == 50.0
    assert lag.quantile_s(0.99) == 99.0


def test_nothing_measured_is_no_lag():
    assert LoopLag(time.monotonic).quantile_s(0.99) == 0.0


def test_only_the_newest_measurements_count():
    lag = LoopLag(time.monotonic, kept=3)
    for value in (9.0, 9.0, 9.0, 1.0, 1.0, 1.0):
        lag.record(value)

    assert lag.quantile_s(0.99) == 1.0


def test_a_blocked_loop_is_seen():
    async def scenario():
        lag = LoopLag(time.monotonic, every_s=0.001)
        lag.start()
        time.sleep(0.05)  # noqa: ASYNC251 -- the measured delay
        await asyncio.sleep(0.01)  # the timer fires
        lag.stop()
        return lag.quantile_s(0.99)

    assert asyncio.run(scenario()) > 0.03
