"""Where records are, and taking the first of them away: each client that has words for it."""

from __future__ import annotations

import pytest

from tests.conformance.clients.administrators import CONFLUENT, Administrator, able
from tests.conformance.kafka.families.families import by_number, produce, refusal

FIRST, SECOND = [b"a"] * 3, [b"b"] * 5


@pytest.fixture
def filled(address: str, topic: str) -> str:
    """Two partitions with 3 and 5 records, whose times are 1000, 2000 ... ms."""
    CONFLUENT.create(address, topic, 2)
    produce(address, topic, {0: FIRST, 1: SECOND})
    return topic


@pytest.mark.parametrize("admin", able("offsets"))
def test_offsets_are_found_by_time(address: str, filled: str, admin: Administrator):
    def at(when: str) -> dict[int, int]:
        return by_number(admin.request("offsets", address, topic=filled, at=when))

    assert at("earliest") == {0: 0, 1: 0}
    assert at("latest") == {0: 3, 1: 5}
    assert at("2500") == {0: 2, 1: 2}
    later = {"franz-go": 3, "kafkajs": 3}.get(admin.name, -1)  # they request the end
    assert at("3500") == {0: later, 1: 3}


@pytest.mark.parametrize("admin", able("newest"))
def test_the_newest_record_is_found_by_its_time(address: str, topic: str, admin: Administrator):
    CONFLUENT.create(address, topic, 1)
    produce(address, topic, {0: [b"old", b"newest"]})
    produce(address, topic, {0: [b"older"]})

    assert admin.request("newest", address, topic=topic, partition=0) == 1


@pytest.mark.parametrize("admin", able("epoch_end"))
def test_an_epoch_that_goes_on_ends_where_the_log_does(
    address: str, filled: str, admin: Administrator
):
    """KIP-320. Other clients send the request by themselves, when their log may be truncated."""
    assert admin.request("epoch_end", address, topic=filled, partition=1) == 5


@pytest.mark.parametrize("admin", able("delete_records"))
def test_the_first_records_are_taken_away(address: str, filled: str, admin: Administrator):
    response = admin.request("delete_records", address, topic=filled, before={"0": 2, "1": -1})

    assert by_number(response) == {0: 2, 1: 5}
    assert CONFLUENT.offsets(address, filled, "earliest") == {0: 2, 1: 5}
    assert "offsetoutofrange" in refusal(
        lambda: admin.request("delete_records", address, topic=filled, before={"0": 99})
    )
