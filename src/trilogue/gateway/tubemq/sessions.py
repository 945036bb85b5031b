"""Clients that are there as long as they are heard of: by their id, bounded, in the order heard.

Time comes in, as seconds of one clock. Nothing here knows of connections: a client may come back on
another one, and a closed one says nothing of its clients (wire facts, section 6).
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")
IDS_MAX = 16 << 20  # characters of all ids of one kind of client


class Sessions(Generic[T]):
    """What is kept of each client, until it has been silent for `timeout_s`."""

    def __init__(self, timeout_s: float, most: int) -> None:
        self.timeout_s = timeout_s
        self._most = most
        self._heard: dict[str, tuple[float, T]] = {}  # the longest silent first
        self._characters = 0  # of all ids

    def __len__(self) -> int:
        return len(self._heard)

    def __contains__(self, client_id: str) -> bool:
        return client_id in self._heard

    def all(self) -> list[tuple[str, T]]:
        """All of them, the longest silent first."""
        return [(client_id, value) for client_id, (_, value) in self._heard.items()]

    def find(self, client_id: str) -> T | None:
        """What is kept of one."""
        found = self._heard.get(client_id)
        return None if found is None else found[1]

    def put(self, client_id: str, value: T, now_s: float) -> bool:
        """Keep something of a client that was heard now; False: there is no room for one more."""
        if self._heard.pop(client_id, None) is None:
            size = self._characters + len(client_id)
            if len(self._heard) >= self._most or size > IDS_MAX:
                return False
            self._characters = size
        self._heard[client_id] = (now_s, value)
        return True

    def heard(self, client_id: str, now_s: float) -> T | None:
        """A client was heard of; what is kept of it, None if nothing is."""
        found = self._heard.pop(client_id, None)
        if found is None:
            return None
        self._heard[client_id] = (now_s, found[1])
        return found[1]

    def drop(self, client_id: str) -> T | None:
        """Forget one."""
        found = self._heard.pop(client_id, None)
        if found is None:
            return None
        self._characters -= len(client_id)
        return found[1]

    def expire(self, now_s: float) -> list[tuple[str, T]]:
        """Forget who was silent for too long, and say who that is."""
        gone = []
        for client_id, (heard_s, value) in self._heard.items():
            if now_s - heard_s < self.timeout_s:
                break
            gone.append((client_id, value))
        for client_id, _ in gone:
            self.drop(client_id)
        return gone
