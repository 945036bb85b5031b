"""A token bucket: what is used is always taken, and the caller then waits until the debt is paid.

    full  ────────  burst: what may be used at once after a pause
                      ▲ fills with `rate` a second
    zero  ────────
                      ▼ a use larger than the balance: a debt of debt / rate seconds
    ...

So no single use is too large, and in the long run the rate holds.
"""

from __future__ import annotations


class TokenBucket:
    """The balance of one quota. Times are seconds of a monotonic clock."""

    __slots__ = ("_balance", "_burst", "_since_s", "rate")

    def __init__(self, rate: float, burst_s: float) -> None:
        assert rate > 0, "nothing could ever be used"
        self.rate = rate
        self._burst = rate * burst_s
        self._balance = self._burst
        self._since_s = 0.0

    def change_rate(self, rate: float, burst_s: float, now_s: float) -> None:
        """Go on with another rate; what the present one allowed until now stays allowed."""
        assert rate > 0, "nothing could ever be used"
        if rate != self.rate:
            self.take_tokens(0.0, now_s)
            self.rate = rate
            self._burst = rate * burst_s

    def take_tokens(self, amount: float, now_s: float) -> float:
        """Take an amount, and return for how many seconds nothing more should be used."""
        passed = max(0.0, now_s - self._since_s)
        self._balance = min(self._burst, self._balance + passed * self.rate) - amount
        self._since_s = max(self._since_s, now_s)
        return -self._balance / self.rate if self._balance < 0 else 0.0

    def balance(self, now_s: float) -> float:
        """Return what may be used without a debt; it is negative while there is one."""
        self.take_tokens(0.0, now_s)
        return self._balance

    def wait_s(self, now_s: float) -> float:
        """Return how many seconds a debt still lasts; nothing is taken."""
        return self.take_tokens(0.0, now_s)
