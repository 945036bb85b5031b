"""Kafka's administrative requests are lines of the audit log: by librdkafka, and one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from tests.conformance.asking import Asker
from tests.security.live_node import LiveNode
from trilogue.broker.access.authorizer import Operation
from trilogue.gateway.kafka.api_table import ApiSpec
from trilogue.gateway.kafka.apis import TABLE
from trilogue.gateway.kafka.security.audit_lines import AUDIT_LINES, NO_LINES, OWN_LINES
from trilogue.wire.kafka.quotas.client_quotas import (
    AlterClientQuotasRequest,
    AlterQuotasEntry,
    AlterQuotasOp,
    EntityData,
)

LIMIT_S = 60
VERBS = ("Alter", "Create", "Delete", "Elect", "Expire", "IncrementalAlter", "Renew", "Unregister",
         "Update", "WriteTxn")  # fmt: skip
CHANGES = {Operation.ALTER, Operation.CREATE, Operation.DELETE, Operation.ALTER_SETTINGS}
TOPIC, GROUP = "topic public/default/audited", "group audited-group"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNode]:
    with LiveNode(tmp_path_factory.mktemp("audit"), {}, ("kafka",)) as made:
        yield made


def read_acts(node: LiveNode, begin: int) -> list[tuple[str, str]]:
    """Return operation and resource of the lines since then."""
    lines = [json.loads(line) for line in node.audit_log.read_text().splitlines()[begin:]]
    assert all(line["event"] == "done" and line["protocol"] == "kafka" for line in lines), lines
    assert all(line["address"] == "127.0.0.1" and line["principal"] for line in lines), lines
    return [(line["operation"], line["resource"]) for line in lines]


def wait(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(LIMIT_S)


@pytest.mark.parametrize("api", TABLE, ids=lambda api: api.name)
def test_each_administrative_request_has_a_row(api: ApiSpec):
    is_change = api.operation in CHANGES or api.name.startswith(VERBS)
    rows = [api.key in table for table in (AUDIT_LINES, OWN_LINES, NO_LINES)]
    assert sum(rows) == int(is_change)


def test_acts_of_librdkafka(node: LiveNode):
    admin = AdminClient({"bootstrap.servers": node.doors["kafka"]})
    wait(admin.create_topics([NewTopic("audited", 1, 1)]))
    producer = Producer({"bootstrap.servers": node.doors["kafka"]})
    producer.produce("audited", b"value", partition=0)
    assert producer.flush(LIMIT_S) == 0
    consumer = Consumer({"bootstrap.servers": node.doors["kafka"], "group.id": "audited-group"})
    position = TopicPartition("audited", 0, 1)
    consumer.commit(offsets=[position], asynchronous=False)
    consumer.close()
    begin = len(node.audit_log.read_text().splitlines())

    wait(admin.create_topics([NewTopic("checked", 1, 1)], validate_only=True))
    wait(admin.create_partitions([NewPartitions("audited", 2)]))
    entry = ConfigEntry("retention.ms", "5000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "audited", incremental_configs=[entry])
    wait(admin.incremental_alter_configs([resource]))
    wait(admin.delete_records([TopicPartition("audited", 0, 1)]))
    wait(admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions("audited-group", [position])]
    ))  # fmt: skip
    wait(admin.delete_consumer_groups(["audited-group"]))
    wait(admin.delete_topics(["audited"]))
    with pytest.raises(Exception, match="UNKNOWN_TOPIC"):
        wait(admin.delete_topics(["absent"]))

    assert read_acts(node, begin) == [
        ("create partitions", TOPIC),
        ("alter settings", TOPIC),
        ("delete records", TOPIC),
        ("delete group", GROUP),
        ("delete topic", TOPIC),
    ]
    assert '"settings": "retention.ms"' in node.audit_log.read_text()


def test_acts_that_a_library_does_not_have(node: LiveNode):
    begin = len(node.audit_log.read_text().splitlines())
    entity = [EntityData(entity_type="user", entity_name="alice")]
    change = AlterQuotasOp(key="producer_byte_rate", value=1_000.0, remove=False)
    entries = [AlterQuotasEntry(entity=entity, ops=[change])]
    with Asker(node.doors["kafka"]) as asker:
        for checked in (True, False):
            asker.request(AlterClientQuotasRequest(entries=entries, validate_only=checked), 1)
    assert read_acts(node, begin) == [("alter quota", "cluster cluster")]


def test_values_of_settings_are_in_no_line(node: LiveNode, tmp_path: Path):
    admin = AdminClient({"bootstrap.servers": node.doors["kafka"]})
    wait(admin.create_topics([NewTopic("valued", 1, 1, config={"segment.ms": "86400123"})]))
    entry = ConfigEntry("retention.ms", "98765432", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "valued", incremental_configs=[entry])
    wait(admin.incremental_alter_configs([resource]))
    shown = node.audit_log.read_text()
    assert "valued" in shown
    assert "98765432" not in shown
    assert "86400123" not in shown
