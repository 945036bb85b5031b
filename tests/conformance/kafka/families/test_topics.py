"""Topics and their settings, the settings of a node: each client that has words for them."""

from __future__ import annotations

import pytest

from tests.conformance.clients.administrators import CONFLUENT, Administrator, able
from tests.conformance.kafka.families.families import eventually, refusal


@pytest.mark.parametrize("admin", able("create", "grow", "delete", "partitions", "topics"))
def test_a_topic_is_made_grown_and_removed(address: str, topic: str, admin: Administrator):
    def partitions() -> object:
        return admin.request("partitions", address, topic=topic)

    def listed() -> bool:
        return topic in admin.request("topics", address)

    admin.request("create", address, topic=topic, partitions=2)
    eventually(partitions, 2)
    eventually(listed, True)
    admin.request("grow", address, topic=topic, partitions=5)
    eventually(partitions, 5)
    admin.request("delete", address, topic=topic)
    eventually(listed, False)


@pytest.mark.parametrize("admin", able("create", "grow", "delete"))
def test_invalid_topic_changes_are_refused_with_the_error_name(
    address: str, topic: str, admin: Administrator
):
    CONFLUENT.create(address, topic, 3)

    assert "exist" in refusal(lambda: admin.request("create", address, topic=topic, partitions=2))
    assert "invalidpartitions" in refusal(
        lambda: admin.request("grow", address, topic=topic, partitions=2)
    )
    assert "unknowntopicorpart" in refusal(
        lambda: admin.request("delete", address, topic=f"{topic}.not")
    )
    assert CONFLUENT.partitions(address, topic) == 3


@pytest.mark.parametrize("admin", able("create", "configs", "alter"))
def test_settings_of_a_topic_are_set_seen_and_taken_away(
    address: str, topic: str, admin: Administrator
):
    def shown() -> object:
        return admin.request("configs", address, resource="topic", name=topic)["retention.ms"][
            "value"
        ]

    settings = {"retention.ms": "3600000"}
    admin.request("create", address, topic=topic, partitions=1, configs=settings)
    eventually(shown, "3600000")
    values = {"retention.ms": "7200000"}
    admin.request("alter", address, resource="topic", name=topic, values=values)
    eventually(shown, "7200000")
    without = {} if admin.name == "aiokafka" else {"without": ["retention.ms"]}
    admin.request("alter", address, resource="topic", name=topic, values={}, **without)
    eventually(shown, "604800000")


@pytest.mark.parametrize("admin", able("configs", "alter"))
def test_settings_of_a_node_are_set_seen_and_taken_away(address: str, admin: Administrator):
    node = CONFLUENT.cluster(address)["nodes"][0]
    where = {"resource": "broker", "name": str(node[0])}

    def shown() -> object:
        return admin.request("configs", address, **where)["message.max.bytes"]["value"]

    before = shown()
    admin.request("alter", address, **where, values={"message.max.bytes": "2000000"})
    eventually(shown, "2000000")
    without = {} if admin.name == "aiokafka" else {"without": ["message.max.bytes"]}
    admin.request("alter", address, **where, values={}, **without)
    eventually(shown, before)
    assert "invalidrequest" in refusal(
        lambda: admin.request("alter", address, **where, values={"message.max.bytes": "many"})
    )
