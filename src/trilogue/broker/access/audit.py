"""The audit log: a JSON line for each refusal, each failed login and each administrative act.

    {"time": 1764000000000, "event": "refused", "principal": "User:alice", "protocol": "kafka",
     "address": "10.0.0.7", "operation": "write", "resource": "topic public/default/orders"}

Events: `refused`, `login.failed`, `done`. No line has a secret: callers pass names and reasons
only. More than `lines_per_s` refusals or failed logins in a second are counted and summed up in one
line (`dropped`). An act is never dropped: refusals without end would hide it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from trilogue.broker.access.authorizer import Operation, Principal, Resource

LINES_PER_S = 1_000
TEXT_MAX = 1_000
DONE = "done"

Emit = Callable[[dict[str, object]], None]


class AuditLog:
    """Makes the lines and passes them to `emit`, which stores them and never raises."""

    def __init__(
        self, emit: Emit, now_ms: Callable[[], int], *, lines_per_s: int = LINES_PER_S
    ) -> None:
        self.refusals = 0
        self._emit = emit
        self._now_ms = now_ms
        self._lines_per_s = lines_per_s
        self._second = 0
        self._lines: Counter[str] = Counter()  # of this second, by event
        self._dropped = 0

    def refused(
        self,
        principal: Principal,
        protocol: str,
        host: str,
        operation: Operation,
        resource: Resource,
    ) -> None:
        """An authorizer refused an operation."""
        self.refusals += 1
        self._write("refused", (principal, protocol, host), operation.value, resource, {})

    def done(
        self,
        principal: Principal,
        protocol: str,
        host: str,
        operation: str,
        resource: Resource,
        **details: object,
    ) -> None:
        """An administrative act was done; `operation` is a verb such as `create topic`."""
        self._write(DONE, (principal, protocol, host), operation, resource, details)

    def login_failed(
        self, user: str, protocol: str, host: str, *, method: str, reason: str
    ) -> None:
        """Credentials were refused; `user` is the name that the client stated."""
        line: dict[str, object] = {
            "principal": user[:TEXT_MAX],
            "protocol": protocol,
            "address": host,
            "method": method,
            "reason": reason[:TEXT_MAX],
        }
        self._pass("login.failed", line)

    def _write(
        self,
        event: str,
        client: tuple[Principal, str, str],
        operation: str,
        resource: Resource,
        details: dict[str, object],
    ) -> None:
        principal, protocol, host = client
        line: dict[str, object] = {
            "principal": str(principal)[:TEXT_MAX],
            "protocol": protocol,
            "address": host,
            "operation": operation,
            "resource": f"{resource.kind.value} {resource.name}"[:TEXT_MAX],
            **details,
        }
        self._pass(event, line)

    def _pass(self, event: str, line: dict[str, object]) -> None:
        now_ms = self._now_ms()
        if now_ms // 1_000 != self._second:
            self._second = now_ms // 1_000
            self._lines.clear()
            if self._dropped:
                self._emit({"time": now_ms, "event": "dropped", "lines": self._dropped})
                self._dropped = 0
        self._lines[event] += 1
        if event != DONE and self._lines[event] > self._lines_per_s:
            self._dropped += 1
            return
        self._emit({"time": now_ms, "event": event, **line})
