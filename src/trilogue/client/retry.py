"""Retries: growing pauses with jitter, until an attempt succeeds or the time-out is over."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Hashable, Iterator
from typing import TypeVar

from trilogue.client.errors import (
    ClientError,
    ConnectionLost,
    ServerUnreachable,
    describe_unreachable,
)

Result = TypeVar("Result")
FOREVER_S = float("inf")
FIRST_CONTACT_S = 2.0
"""How long a call tries to reach servers to which no connection was ever open."""


class Backoff:
    """A pause after each failure of a key, longer after each failure in a row."""

    def __init__(
        self,
        clock: Callable[[], float],
        first_s: float = 0.05,
        longest_s: float = 1.0,
        jitter: random.Random | None = None,
    ) -> None:
        self._clock = clock
        self._first_s, self._longest_s = first_s, longest_s
        self._jitter = jitter
        self._failed: dict[Hashable, tuple[Iterator[float], float]] = {}

    def record_failure(self, key: Hashable) -> None:
        """It failed now."""
        known = self._failed.get(key)
        growing = known[0] if known else pauses(
            self._first_s, self._longest_s, float("inf"), self._jitter
        )  # fmt: skip
        self._failed[key] = growing, self._clock() + next(growing)

    def record_success(self, key: Hashable) -> None:
        """It did not fail."""
        self._failed.pop(key, None)

    def remaining_s(self, key: Hashable) -> float:
        """The seconds until another attempt may be made; 0 without a failure."""
        known = self._failed.get(key)
        return max(0.0, known[1] - self._clock()) if known else 0.0


def pauses(
    first_s: float = 0.05,
    longest_s: float = 1.0,
    total_s: float = 30.0,
    jitter: random.Random | None = None,
) -> Iterator[float]:
    """Seconds to wait before each further try; ends when their sum reaches `total_s`."""
    dice = jitter or random.Random()  # noqa: S311 - spreads retries, guards nothing
    spent, pause = 0.0, first_s
    while spent < total_s:
        taken = pause * dice.uniform(0.8, 1.2)
        yield taken
        spent += taken
        pause = min(pause * 2, longest_s)


async def retry(
    attempt: Callable[[], Awaitable[Result]],
    *,
    about: str,
    server: str,
    total_s: float,
    may_pass: Callable[[ClientError], bool],
    growing: Iterator[float] | None = None,
    was_reached: Callable[[], bool] = lambda: True,
) -> Result:
    """Return the result of the first attempt that succeeds, within `total_s` seconds.

    Where `was_reached` returns False, attempts without a connection end after FIRST_CONTACT_S.

    `may_pass` returns whether another attempt may not meet the same error. Any other error is
    raised at once. When the time is over, the error of the last attempt is raised:
    ServerUnreachable, which names `server`, for a lost connection or where no attempt came to an
    end.
    """
    loop = asyncio.get_running_loop()
    start = loop.time()
    deadline = start + total_s
    problem: ClientError | None = None
    for pause in growing or pauses(total_s=FOREVER_S):
        try:
            async with asyncio.timeout_at(deadline):
                return await attempt()
        except ClientError as failed:
            if not may_pass(failed):
                raise
            problem = failed
        except TimeoutError:
            problem = problem or ServerUnreachable(
                describe_unreachable(server, f"{about}: no answer", within_s=total_s)
            )
        first_contact = isinstance(problem, ConnectionLost) and not was_reached()
        if loop.time() + pause >= (start + FIRST_CONTACT_S if first_contact else deadline):
            break
        await asyncio.sleep(pause)
    assert problem is not None
    if isinstance(problem, ConnectionLost) and not isinstance(problem, ServerUnreachable):
        within_s = min(total_s, FIRST_CONTACT_S) if not was_reached() else total_s
        text = describe_unreachable(server, f"{about}: {problem}", within_s=within_s)
        raise ServerUnreachable(text) from problem
    raise problem
