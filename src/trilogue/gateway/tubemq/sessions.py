"""Sessions of clients by client id, bounded, in the order of their last request.

Times are arguments, in seconds of one clock. Sessions do not depend on connections: a client may
come back on another one, and a closed connection ends no session.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")
IDS_MAX = 16 << 20  # characters of the ids of one kind of client


class ClientSessions(Generic[T]):
    """A value for each client, kept until it has sent nothing for `timeout_s`."""

    def __init__(self, timeout_s: float, limit: int) -> None:
        self.timeout_s = timeout_s
        self._limit = limit
        self._entries: dict[str, tuple[float, T]] = {}  # oldest first
        self._characters = 0  # of all ids

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, client_id: str) -> bool:
        return client_id in self._entries

    def items(self) -> list[tuple[str, T]]:
        """Return all clients and values, the oldest first."""
        return [(client_id, value) for client_id, (_, value) in self._entries.items()]

    def find_session(self, client_id: str) -> T | None:
        """Return the value of a client; None if there is none."""
        found = self._entries.get(client_id)
        return None if found is None else found[1]

    def put_session(self, client_id: str, value: T, now_s: float) -> bool:
        """Set the value of a client; False where the limit is reached."""
        if self._entries.pop(client_id, None) is None:
            size = self._characters + len(client_id)
            if len(self._entries) >= self._limit or size > IDS_MAX:
                return False
            self._characters = size
        self._entries[client_id] = (now_s, value)
        return True

    def touch(self, client_id: str, now_s: float) -> T | None:
        """Renew a session; return its value, None if there is none."""
        found = self._entries.pop(client_id, None)
        if found is None:
            return None
        self._entries[client_id] = (now_s, found[1])
        return found[1]

    def remove(self, client_id: str) -> T | None:
        """Remove a client; return its value, None if there is none."""
        found = self._entries.pop(client_id, None)
        if found is None:
            return None
        self._characters -= len(client_id)
        return found[1]

    def expire(self, now_s: float) -> list[tuple[str, T]]:
        """Remove the sessions that have timed out, and return them."""
        gone = []
        for client_id, (seen_s, value) in self._entries.items():
            if now_s - seen_s < self.timeout_s:
                break
            gone.append((client_id, value))
        for client_id, _ in gone:
            self.remove(client_id)
        return gone
