"""A node whose lease is over closes its connections until the lease is renewed."""

from __future__ import annotations

from dataclasses import dataclass, field

from trilogue.node.cluster.lease_guard import LeaseGuard


@dataclass
class KnownLease:
    lease_ends_s: float = 10.0


@dataclass
class ListenerLog:
    calls: list[str] = field(default_factory=list)

    def suspend(self) -> None:
        self.calls.append("suspend")

    def resume(self) -> None:
        self.calls.append("resume")


def test_listeners_are_suspended_while_the_lease_is_over():
    now_s = [0.0]
    lease, listener = KnownLease(), ListenerLog()
    guard = LeaseGuard(lease, {"kafka": listener}, lambda: now_s[0])

    for now_s[0] in (0.0, 9.9, 10.0, 10.5):
        guard.look()
    assert listener.calls == ["suspend"]
    lease.lease_ends_s = 13.0
    guard.look()
    guard.look()
    assert listener.calls == ["suspend", "resume"]
    assert guard.lapses == 1
