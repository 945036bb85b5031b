"""Topics in TubeMQ's web API: created for all protocols, changed, deleted, removed."""

from __future__ import annotations

import itertools

import pulsar
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.gateway.http.tubemq.web_api_client import Web
from tests.waiting import wait_until
from trilogue.client.tubemq import Message
from trilogue.client.tubemq.errors import TubeError
from trilogue.client.tubemq.sync import TubeClient

_numbers = itertools.count(1)
MODIFY = "admin_modify_topic_info"


@pytest.fixture
def name():
    return f"topic_{next(_numbers)}"


def configured(web: Web, name: str):
    return web.query_one("admin_query_topic_deploy_configure", topicName=name)


def retention(web: Web, name: str) -> str | None:
    from confluent_kafka.admin import ConfigResource

    admin = AdminClient({"bootstrap.servers": web.server.kafka})
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    return admin.describe_configs([resource])[resource].result(60)["retention.ms"].value


def test_a_topic_is_at_once_there_for_all_three(web, name):
    web.topic(name, numPartitions=3)

    admin = AdminClient({"bootstrap.servers": web.server.kafka})
    assert len(admin.list_topics(name, timeout=60).topics[name].partitions) == 3
    client = pulsar.Client(f"pulsar://{web.server.doors['pulsar']}")
    assert len(client.get_topic_partitions(name)) == 3
    client.close()
    with TubeClient(web.server.doors["tubemq-master"]) as tube, tube.producer(name) as producer:
        assert producer.send(Message(name, b"one")).offset == 0


def test_a_topic_that_kafka_made_is_shown_and_changed(web, name):
    producer = Producer({"bootstrap.servers": web.server.kafka})
    producer.produce(name, b"x")
    assert producer.flush(60) == 0

    assert configured(web, name)["createUser"] == "-"
    assert web.change_one(MODIFY, brokerId=1, topicName=name, numPartitions=2) == 200
    result = configured(web, name)
    assert (result["numPartitions"], result["modifyUser"]) == (2, "admin")


def test_partitions_grow_and_never_shrink(web, name):
    web.topic(name)

    assert web.change_one(MODIFY, brokerId=1, topicName=name, numPartitions=4) == 200
    assert web.change_one(MODIFY, brokerId=1, topicName=name, numPartitions=3) == 407
    assert web.change_one(MODIFY, brokerId=1, topicName=name, numPartitions=4) == 403
    assert configured(web, name)["numPartitions"] == 4


@pytest.mark.parametrize(
    ("policy", "retention_ms"),
    [("delete,168h", 604_800_000), ("delete,90m", 5_400_000), ("delete,30s", 30_000)],
)
def test_a_delete_policy_is_the_retention_that_kafka_sees(web, name, policy, retention_ms):
    web.topic(name, deletePolicy=policy)

    assert retention(web, name) == str(retention_ms)
    shown = {"delete,90m": "delete,5400s"}.get(policy, policy)
    assert configured(web, name)["deletePolicy"] == shown


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"deletePolicy": "weird"}, "deletePolicy"),
        ({"deletePolicy": "delete,0h"}, "deletePolicy"),
        ({"numTopicStores": 2}, "one store"),
        ({"dataPath": "/x"}, "dataPath"),
        ({"maxMsgSizeInMB": 21}, "value must <= 20"),
        ({"maxMsgSizeInMB": 0}, "value must >= 1"),
        ({"numPartitions": 0}, "value must >= 1"),
    ],
)
def test_invalid_topic_settings_are_refused(web, name, wrong, message):
    response = web("admin_add_new_topic_record", brokerId=1, topicName=name, **wrong)

    assert (response["result"], response["errCode"]) == (False, 400)
    assert message in response["errMsg"]
    assert web("admin_query_topic_info", topicName=name)["data"] == []


def test_a_larger_message_than_an_entry_is_refused(web, name):
    response = web("admin_add_new_topic_record", brokerId=1, topicName=name, maxMsgSizeInMB=16)

    assert "1 to 15 MB" in str(response)


def test_message_size_limit_is_enforced_and_returned(web, name):
    web.topic(name, maxMsgSizeInMB=2)
    large = Message(name, b"x" * (3 << 19))

    with TubeClient(web.server.doors["tubemq-master"]) as tube, tube.producer(name) as producer:
        assert producer.send(large).offset == 0
    assert web.query_one("admin_query_topic_info", topicName=name)["maxMsgSizeInMB"] == 2


def test_batch_creation_returns_one_result_per_topic(web, name):
    web.topic(name)
    records = f'[{{"brokerId":1,"topicName":"{name}"}},{{"brokerId":1,"topicName":"{name}b"}}]'

    response = web("admin_bath_add_new_topic_record", topicJsonSet=records)

    assert [each["errCode"] for each in response["data"]] == [402, 200]


def test_topic_closed_for_publish_is_not_in_the_topics_of_a_producer(web, name):
    web.topic(name, acceptPublish="false")

    with TubeClient(web.server.doors["tubemq-master"]) as tube, tube.producer() as producer:
        producer.publish(name)
        with pytest.raises(TubeError):
            producer.send(Message(name, b"x"))
        assert web.change_one(MODIFY, brokerId=1, topicName=name, acceptPublish="true") == 200
        wait_until(lambda: name in producer.publish(name))
        assert producer.send(Message(name, b"x")).offset == 0


def test_taking_away_has_two_steps_and_the_first_may_be_taken_back(web, name):
    web.topic(name)
    which = {"brokerId": 1, "topicName": name}
    admin = AdminClient({"bootstrap.servers": web.server.kafka})

    assert web.change_one("admin_delete_topic_info", **which) == 406
    assert web.change_one("admin_remove_topic_info", **which) == 406
    assert web.change_one(MODIFY, acceptPublish="false", acceptSubscribe="false", **which) == 200
    assert web.change_one("admin_delete_topic_info", **which) == 200
    assert configured(web, name)["topicStatusId"] == 1
    assert name in admin.list_topics(timeout=60).topics
    assert web("admin_query_topic_info", topicName=name, topicStatusId=0)["data"] == []
    assert web.change_one("admin_redo_deleted_topic_info", **which) == 200
    assert configured(web, name)["topicStatusId"] == 0
    assert web.change_one("admin_remove_topic_info", **which) == 200
    assert web("admin_query_topic_info", topicName=name)["data"] == []
    assert name not in admin.list_topics(timeout=60).topics


def test_another_broker_has_no_topics(web, name):
    web.topic(name)

    assert web("admin_query_topic_info", topicName=name, brokerId=2)["data"] == []
    assert web.change_one("admin_add_new_topic_record", brokerId=2, topicName=f"{name}b") == 401


def test_the_broker_may_pause(web, name):
    web.topic(name)
    assert (
        web.change_one("admin_set_broker_read_or_write", brokerId=1, acceptPublish="false") == 200
    )
    try:
        response = web.query_one("admin_query_broker_configure")
        assert (response["manageStatus"], response["acceptPublish"]) == ("only-read", False)
        assert not web.query_one("admin_query_cluster_topic_view", topicName=name)[
            "isSrvAcceptPublish"
        ]
        with TubeClient(web.server.doors["tubemq-master"]) as tube, tube.producer() as producer:
            assert producer.publish(name) == set()
    finally:
        assert web.change_one("admin_online_broker_configure", brokerId=1) == 200
    assert web.change_one("admin_online_broker_configure", brokerId=1) == 403
