"""Failed logins of addresses: what is counted, and what is forgotten with time."""

from __future__ import annotations

from trilogue.gateway import failed_logins
from trilogue.gateway.failed_logins import FailedLogins


def test_an_address_is_full_after_its_failures_until_time_passes():
    now = [100.0]
    failures = FailedLogins(lambda: now[0])
    for _ in range(failed_logins.FAILURES_MAX):
        assert not failures.is_full("10.0.0.1")
        failures.count("10.0.0.1")

    assert failures.is_full("10.0.0.1")
    assert not failures.is_full("10.0.0.2")

    now[0] += 1 / failed_logins.FAILURES_PER_S
    assert not failures.is_full("10.0.0.1")
    failures.count("10.0.0.1")
    assert failures.is_full("10.0.0.1")


def test_the_oldest_addresses_are_forgotten(monkeypatch):
    monkeypatch.setattr(failed_logins, "KEYS_MAX", 2)
    failures = FailedLogins(lambda: 0.0)
    for _ in range(failed_logins.FAILURES_MAX):
        failures.count("a")
    failures.count("b")
    failures.count("c")

    assert not failures.is_full("a")
