"""Failed logins of addresses: passwords are guessed slowly, at HTTP and by TubeMQ's signatures.

An address may fail `FAILURES_MAX` times at once, and `FAILURES_PER_S` times a second from then on;
meanwhile its next password is not checked.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

FAILURES_MAX: Final = 50  # of an address at once
FAILURES_PER_S: Final = 2.0
ADDRESSES_MAX: Final = 10_000
TOO_MANY_FAILURES: Final = "too many failed logins from this address"


class FailedLogins:
    """Counts the failed logins of addresses; each is forgotten with time."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._counts: OrderedDict[str, tuple[float, float]] = OrderedDict()  # count, at this time

    def count(self, host: str) -> None:
        """Add a failure of an address."""
        self._counts[host] = (self._present(host) + 1, self._monotonic())
        self._counts.move_to_end(host)
        if len(self._counts) > ADDRESSES_MAX:
            self._counts.popitem(last=False)

    def is_full(self, host: str) -> bool:
        """Return whether the next password of an address is not checked now."""
        return self._present(host) >= FAILURES_MAX

    def _present(self, host: str) -> float:
        count, at = self._counts.get(host, (0.0, 0.0))
        return max(0.0, count - (self._monotonic() - at) * FAILURES_PER_S)
