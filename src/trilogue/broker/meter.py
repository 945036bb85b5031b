"""A bucket that fills at a rate: what was used is always taken, and then one waits for it.

    full  ────────  burst: what may be used at once after a pause
                      ▲ fills with `rate` a second
    nought ───────
                      ▼ a use larger than what is there: a debt of debt / rate seconds
    ...

So nothing is too large to be used, and in the long run no more is used than the rate says.
"""

from __future__ import annotations


class Meter:
    """What may be used of one thing. Times are seconds of a clock that never goes back."""

    __slots__ = ("_balance", "_burst", "_since_s", "rate")

    def __init__(self, rate: float, burst_s: float) -> None:
        assert rate > 0, "nobody could ever use anything"
        self.rate = rate
        self._burst = rate * burst_s
        self._balance = self._burst
        self._since_s = 0.0

    def take(self, amount: float, now_s: float) -> float:
        """Use so much, and return for how many seconds nothing more should be used."""
        passed = max(0.0, now_s - self._since_s)
        self._balance = min(self._burst, self._balance + passed * self.rate) - amount
        self._since_s = max(self._since_s, now_s)
        return -self._balance / self.rate if self._balance < 0 else 0.0

    def wait_s(self, now_s: float) -> float:
        """How many seconds a debt still lasts; nothing is used."""
        return self.take(0.0, now_s)
