"""SCRAM credentials of users: each client that lists all of them with an empty list of names."""

from __future__ import annotations

import pytest

from tests.conformance.clients.administrators import Administrator, able


@pytest.mark.parametrize("admin", able("scram_users", "set_scram", "delete_scram"))
def test_an_empty_list_of_users_is_all_of_them(address: str, topic: str, admin: Administrator):
    """KIP-554; sarama has no null list."""
    admin.request("set_scram", address, client=topic)
    listed = admin.request("scram_users", address)
    admin.request("delete_scram", address, client=topic)

    assert listed[topic] == [1]
    assert topic not in admin.request("scram_users", address)
