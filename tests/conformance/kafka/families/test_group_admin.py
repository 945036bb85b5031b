"""Groups seen from outside: each client that has words for it looks at a group of another's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.clients.administrators import CONFLUENT, Administrator, able
from tests.conformance.conftest import unique
from tests.conformance.kafka.families.families import by_number, produce, refusal
from tests.conformance.members import ConfluentMember, pump


@pytest.fixture(scope="module")
def topic_of_all(broker: object) -> str:
    """Two partitions with 3 and 5 records."""
    topic = unique("group-admin")
    CONFLUENT.create(broker.address, topic, 2)
    produce(broker.address, topic, {0: [b"a"] * 3, 1: [b"b"] * 5})
    return topic


@pytest.fixture(scope="module")
def member(broker: object, topic_of_all: str) -> Iterator[ConfluentMember]:
    """The one member of a group, which has the topic's name, and has read and committed all."""
    made = ConfluentMember(broker.address, topic_of_all, topic_of_all)
    pump([made], lambda: len(made.reads) == 8, "it reads all")
    made.commit()
    yield made
    made.close()


@pytest.fixture
def left(address: str, topic: str, topic_of_all: str) -> str:
    """A group whose one member committed and left."""
    made = ConfluentMember(address, topic, topic_of_all)
    pump([made], lambda: len(made.reads) == 8, "it reads all")
    made.commit()
    made.close()
    return topic


def positions(admin: Administrator, address: str, group: str, topic: str) -> dict[int, int]:
    response = admin.request("group_offsets", address, group=group)
    return by_number(response.get(topic, {}))


@pytest.mark.parametrize("admin", able("groups", "describe_group", "group_offsets"))
def test_a_group_is_seen_with_its_member(
    address: str, member: ConfluentMember, topic_of_all: str, admin: Administrator
):
    listed = admin.request("groups", address)
    response = admin.request("describe_group", address, group=topic_of_all)

    assert (listed[topic_of_all] or "stable").lower() == "stable"
    assert (response["state"].lower(), response["protocol"]) == ("stable", "range")
    (one,) = response["members"]
    assert one["id"].startswith("rdkafka-")
    assert one["client"] == "rdkafka"
    places = [[topic_of_all, 0], [topic_of_all, 1]]
    assert sorted(map(list, one.get("partitions", places))) == places
    assert positions(admin, address, topic_of_all, topic_of_all) == {0: 3, 1: 5}


@pytest.mark.parametrize("admin", able("delete_group"))
def test_a_group_with_a_member_is_not_deleted(
    address: str, member: ConfluentMember, topic_of_all: str, admin: Administrator
):
    assert "empty" in refusal(lambda: admin.request("delete_group", address, group=topic_of_all))


@pytest.mark.parametrize("admin", able("delete_group", "describe_group"))
def test_a_group_that_was_left_is_deleted(
    address: str, left: str, topic_of_all: str, admin: Administrator
):
    assert admin.request("describe_group", address, group=left)["state"].lower() == "empty"

    admin.request("delete_group", address, group=left)

    assert left not in admin.request("groups", address)
    assert positions(admin, address, left, topic_of_all) == {}
    assert "notfound" in refusal(lambda: admin.request("delete_group", address, group=left))


@pytest.mark.parametrize("admin", able("alter_group_offsets"))
def test_positions_are_set_from_outside(
    address: str, left: str, topic_of_all: str, admin: Administrator
):
    admin.request("alter_group_offsets", address, group=left, topic=topic_of_all, offsets={"0": 1})

    assert positions(CONFLUENT, address, left, topic_of_all) == {0: 1, 1: 5}


@pytest.mark.parametrize("admin", able("delete_group_offsets"))
def test_a_position_is_deleted_unless_the_group_reads_there(
    address: str, member: ConfluentMember, left: str, topic_of_all: str, admin: Administrator
):
    admin.request("delete_group_offsets", address, group=left, topic=topic_of_all, partition=0)

    assert positions(CONFLUENT, address, left, topic_of_all) == {1: 5}
    assert "subscribed" in refusal(
        lambda: admin.request(
            "delete_group_offsets", address, group=topic_of_all, topic=topic_of_all, partition=0
        )
    )
