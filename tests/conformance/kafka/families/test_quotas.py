"""Quotas of clients: each client that has words for them."""

from __future__ import annotations

import pytest

from tests.conformance.clients.administrators import Administrator, able
from tests.conformance.kafka.families.families import refusal


@pytest.mark.parametrize("admin", able("quotas", "set_quota"))
def test_a_quota_is_set_seen_and_taken_away(address: str, topic: str, admin: Administrator):
    def shown() -> object:
        return admin.request("quotas", address).get(topic)

    admin.request("set_quota", address, client=topic, key="producer_byte_rate", value=65536.0)
    admin.request("set_quota", address, client=topic, key="consumer_byte_rate", value=131072.0)
    both = shown()
    admin.request("set_quota", address, client=topic, key="producer_byte_rate", value=None)
    one = shown()
    admin.request("set_quota", address, client=topic, key="consumer_byte_rate", value=None)

    assert both == {"producer_byte_rate": 65536.0, "consumer_byte_rate": 131072.0}
    assert one == {"consumer_byte_rate": 131072.0}
    assert shown() is None
    why = refusal(
        lambda: admin.request("set_quota", address, client=topic, key="no_such_rate", value=1.0)
    )
    assert (
        "invalidrequest" in why or admin.name == "sarama"
    )  # whose error has the broker's text alone
