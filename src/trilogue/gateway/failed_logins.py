"""Bounds of logins: passwords are guessed slowly, and addresses take turns.

    HTTP, TubeMQ's signatures   counted by address
    passwords and SCRAM         by address and user, at all listeners together: many clients of one
                                host log in, and one with a wrong password does not lock out the
                                users of the others

A key may fail `FAILURES_MAX` times at once, and `FAILURES_PER_S` times a second from then on;
meanwhile its next password is not checked. Checks that are under way count as failures.

Passwords wait for a thread in a queue for each address (`PasswordTurns`): a client does not wait
for the hundreds that another address sends.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
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


class PasswordTurns:
    """The checks of passwords that wait for a thread: the addresses of clients take turns."""

    def __init__(self, threads: int, waiting_max: int) -> None:
        self._free = threads
        self._waiting_max = waiting_max
        self._waiting: dict[str, deque[asyncio.Future[bool]]] = {}  # by address, in turn
        self._count = 0

    def has_room(self, host: str) -> bool:
        """Return whether one more may wait: there is room, or another address has more."""
        if self._count < self._waiting_max:
            return True
        longest = max(map(len, self._waiting.values()))
        return len(self._waiting.get(host, ())) + 1 < longest

    @asynccontextmanager
    async def turn(self, host: str) -> AsyncIterator[bool]:
        """Wait for a thread; False: there is none, since the place went to another address."""
        has_turn = True
        if self._free:
            self._free -= 1
        else:
            has_turn = await self._wait(host)
        try:
            yield has_turn
        finally:
            if has_turn:
                self._start_next()

    async def _wait(self, host: str) -> bool:
        if self._count >= self._waiting_max:
            self._drop_one()
        start: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(host, deque()).append(start)
        self._count += 1
        try:
            return await start
        except asyncio.CancelledError:
            if start.done() and not start.cancelled() and start.result():
                self._start_next()
            raise

    def _start_next(self) -> None:
        """Give a thread that is free to the next address, which is behind the others then."""
        while self._waiting:
            host = next(iter(self._waiting))
            waiting = self._waiting.pop(host)
            start = waiting.popleft()
            self._count -= 1
            if waiting:
                self._waiting[host] = waiting
            if not start.done():
                start.set_result(True)
                return
        self._free += 1

    def _drop_one(self) -> None:
        """Drop the last of the address with most."""
        longest = max(self._waiting, key=lambda host: len(self._waiting[host]))
        waiting = self._waiting[longest]
        dropped = waiting.pop()
        self._count -= 1
        if not waiting:
            del self._waiting[longest]
        if not dropped.done():
            dropped.set_result(False)
