"""How often and how long a client asks again: growing pauses with jitter until a deadline."""

from __future__ import annotations

import random
from collections.abc import Iterator


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
