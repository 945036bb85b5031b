"""Bounds of failed logins: passwords are guessed slowly.

    HTTP, TubeMQ's signatures   counted by address
    passwords and SCRAM         by address and user, at all listeners together: many clients of one
                                host log in, and one with a wrong password does not lock out the
                                users of the others

A key may fail `FAILURES_MAX` times at once, and `FAILURES_PER_S` times a second from then on;
meanwhile its next password is not checked. Checks that are under way count as failures.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

FAILURES_MAX: Final = 50  # of a key at once
FAILURES_PER_S: Final = 2.0
KEYS_MAX: Final = 10_000
USER_MAX: Final = 256  # characters of a user's name in a key: no user has a longer one
TOO_MANY_FAILURES: Final = "too many failed logins from this address"
TOO_MANY_FAILURES_OF_USER: Final = "too many failed logins of this user from this address"


def key_of_user(user: str, host: str) -> str:
    """Return the key of a user's logins from an address."""
    return f"{host} {user[:USER_MAX]}"


class FailedLogins:
    """Counts the failed logins of keys; each is forgotten with time."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._counts: OrderedDict[str, tuple[float, float]] = OrderedDict()  # count, at this time

    def count(self, key: str) -> None:
        """Add a failure of a key."""
        self._counts[key] = (self._present(key) + 1, self._monotonic())
        self._counts.move_to_end(key)
        if len(self._counts) > KEYS_MAX:
            self._counts.popitem(last=False)

    def is_full(self, key: str, under_way: int = 0) -> bool:
        """Return whether the next password of a key is not checked now."""
        return self._present(key) + under_way >= FAILURES_MAX

    def _present(self, key: str) -> float:
        count, at = self._counts.get(key, (0.0, 0.0))
        return max(0.0, count - (self._monotonic() - at) * FAILURES_PER_S)
