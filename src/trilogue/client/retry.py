"""How often and how long a client asks again: growing pauses with jitter until a deadline."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator


class Backoff:
    """Who failed is not tried again at once; each failure in a row makes the pause longer."""

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

    def failed(self, who: Hashable) -> None:
        """It failed now."""
        known = self._failed.get(who)
        growing = known[0] if known else pauses(
            self._first_s, self._longest_s, float("inf"), self._jitter
        )  # fmt: skip
        self._failed[who] = growing, self._clock() + next(growing)

    def worked(self, who: Hashable) -> None:
        """It did not fail."""
        self._failed.pop(who, None)

    def left_s(self, who: Hashable) -> float:
        """How long it is still to be left alone; 0 for whoever has not failed."""
        known = self._failed.get(who)
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
