"""Groups in TubeMQ's web API: consume control, flow control, offsets, and their effect."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.gateway.http.tubemq.web_api_client import Web
from trilogue.client.tubemq import Message
from trilogue.client.tubemq.errors import TubeError
from trilogue.client.tubemq.sync import Consumer, TubeClient

_numbers = itertools.count(1)
SLOW = '[{"type":1,"rule":[{"zeroCnt":3,"freqInMs":300}]}]'


@pytest.fixture
def topic(web):
    return web.topic(f"read_{next(_numbers)}")


@pytest.fixture
def group():
    return f"group_{next(_numbers)}"


def write(web: Web, topic: str, count: int) -> None:
    with TubeClient(web.server.doors["tubemq-master"]) as tube, tube.producer(topic) as producer:
        for number in range(count):
            producer.send(Message(topic, str(number).encode()))


@contextmanager
def reading(web: Web, group: str, topic: str, *filters: str) -> Iterator[Consumer]:
    with (
        TubeClient(web.server.doors["tubemq-master"]) as tube,
        tube.consumer({topic: set(filters)}, group=group) as consumer,
    ):
        yield consumer


def received(web: Web, group: str, topic: str) -> list[bytes]:
    """Receive and confirm one batch."""
    with reading(web, group, topic) as consumer:
        batch = consumer.get(10)
        consumer.confirm(batch)
        return [message.body for message in batch]


def code(web: Web, group: str, topic: str, *filters: str) -> int:
    """Return the code with which a group is rejected."""
    with pytest.raises(TubeError) as refused, reading(web, group, topic, *filters) as consumer:
        consumer.get(2)
    return int(refused.value.code)


# -- who may read


def test_a_group_on_the_black_list_is_refused_and_let_in_again(web, topic, group):
    which = {"groupName": group, "topicName": topic}
    assert web.change_one("admin_add_black_consumergroup_info", **which) == 200
    assert web.query_one("admin_query_black_consumer_group_info", **which)["groupName"] == group

    assert code(web, group, topic) == 450
    assert web.change_one("admin_delete_black_consumergroup_info", **which) == 200
    assert web("admin_query_black_consumer_group_info", **which)["data"] == []
    write(web, topic, 1)
    assert received(web, group, topic) == [b"0"]


def test_of_a_topic_for_named_groups_others_are_refused(web, topic, group):
    assert (
        web.change_one("admin_set_topic_authorize_control", topicName=topic, isEnable="true") == 200
    )
    assert code(web, group, topic) == 450

    which = {"groupName": group, "topicName": topic}
    assert web.change_one("admin_add_authorized_consumergroup_info", **which) == 200
    result = web.query_one("admin_query_topic_authorize_control", topicName=topic)
    assert (result["isEnable"], result["authConsumeGroup"][0]["groupName"]) == (True, group)
    write(web, topic, 1)
    assert received(web, group, topic) == [b"0"]

    assert web.change_one("admin_delete_allowed_consumer_group_info", **which) == 200
    assert code(web, group, topic) == 450


def test_off_the_black_list_is_not_on_the_list_of_named_groups(web, topic, group):
    which = {"groupName": group, "topicName": topic}
    web.change_one("admin_set_topic_authorize_control", topicName=topic, isEnable="true")
    web.change_one("admin_add_black_consumergroup_info", **which)
    web.change_one("admin_delete_black_consumergroup_info", **which)

    assert code(web, group, topic) == 450


def test_filters_that_are_prescribed_are_requested(web, topic, group):
    which = {"groupName": group, "topicName": topic}
    set_to = {"filterConds": "a,b", "condStatus": 2}
    assert web.change_one("admin_add_group_filtercond_info", **which, **set_to) == 200
    result = web.query_one("admin_query_group_filtercond_info", **which)
    assert (result["condStatus"], result["filterConds"]) == (2, ",a,b,")

    assert code(web, group, topic) == 455
    assert code(web, group, topic, "c") == 455
    with reading(web, group, topic, "a") as consumer:
        assert consumer.partitions is not None
    assert web.change_one("admin_del_group_filtercond_info", **which) == 200


def test_one_consume_control_record_has_all_fields(web, topic, group):
    which = {"groupName": group, "topicName": topic}
    response = {"consumeEnable": "false", "disableCsmRsn": "too loud", "filterConds": "x"}
    assert web.change_one("admin_add_group_csmctrl_info", **which, **response) == 200
    assert web.change_one("admin_add_group_csmctrl_info", **which, **response) == 402
    assert web.change_one("admin_update_group_csmctrl_info", **which, **response) == 403
    result = web.query_one("admin_query_group_csmctrl_info", **which)
    assert (result["consumeEnable"], result["disableCsmRsn"], result["filterConds"]) == (
        False,
        "too loud",
        ",x,",
    )
    assert group in web("admin_query_booked_csmctrl_groups")["data"]
    assert web.change_one("admin_delete_group_csmctrl_info", groupName=group) == 200
    assert web("admin_query_group_csmctrl_info", **which)["data"] == []
    assert web.change_one("admin_update_group_csmctrl_info", **which, **response) == 401


# -- how fast


def test_flow_control_rule_is_set_returned_and_deleted(web, group):
    which = {"groupName": group}
    set_to = {"flowCtrlInfo": SLOW, "statusId": 1}
    assert web.change_one("admin_set_group_flow_control_rule", **which, **set_to) == 200
    result = web.query_one("admin_query_group_flow_control_rule", **which)
    assert (result["statusId"], result["ruleCnt"]) == (1, 1)
    assert result["flowCtrlInfo"] == json.loads(SLOW)
    assert web.change_one("admin_upd_group_flow_control_rule", **which, statusId=0) == 200
    assert web.change_one("admin_upd_group_flow_control_rule", **which, statusId=0) == 403
    assert web.query_one("admin_query_group_resctrl_info", **which)["flowCtrlEnable"] is False
    assert web.change_one("admin_delete_group_resctrl_info", **which) == 200
    assert web("admin_query_group_flow_control_rule", **which)["data"] == []
    assert web.change_one("admin_upd_group_flow_control_rule", **which, statusId=0) == 401


@pytest.mark.parametrize("text", ["nonsense", "[{}]", '[{"type":9,"rule":[]}]'])
def test_invalid_flow_control_rule_is_refused(web, group, text):
    response = web(
        "admin_set_group_flow_control_rule", groupName=group, flowCtrlInfo=text, statusId=1
    )

    assert not response["result"] or not response["data"][0]["success"]
    assert web("admin_query_group_flow_control_rule", groupName=group)["data"] == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"qryPriorityId": 303}, "priorities"), ({"enableBind": 0}, "bound consumption")],
)
def test_unsupported_group_setting_is_refused(web, group, wrong, message):
    response = web("admin_add_consume_group_setting", groupName=group, **wrong)

    assert not response["result"]
    assert message in response["errMsg"]


def test_the_size_of_all_topics_is_the_clusters(web, topic):
    assert web("admin_set_cluster_default_setting", maxMsgSizeInMB=3)["result"]
    try:
        assert web.query_one("admin_query_topic_info", topicName=topic)["maxMsgSizeInMB"] == 3
    finally:
        assert web("admin_set_cluster_default_setting", maxMsgSizeInMB=1)["result"]
    response = web("admin_set_cluster_default_setting", numPartitions=3)
    assert not response["result"]


# -- where they are


def test_group_offsets_are_returned_and_set(web, topic, group):
    write(web, topic, 5)
    assert len(received(web, group, topic)) == 5
    one = {"groupName": group, "topicName": topic, "partitionId": 0}

    result = web("admin_query_group_offset", path="/broker.htm", **one)
    assert (result["zkOffset"], result["minOffset"], result["maxOffset"]) == (5, 0, 5)
    moved = web("admin_manual_set_current_offset", manualOffset=2, **one)
    assert (moved["result"], moved["oldOffset"]) == (True, 5)
    assert received(web, group, topic) == [b"2", b"3", b"4"]
    assert not web("admin_manual_set_current_offset", manualOffset=6, **one)["result"]


def test_groups_are_cloned_moved_to_the_end_and_forgotten(web, topic, group):
    write(web, topic, 3)
    place = json.dumps({f"1:{topic}:0": 1})
    manual = {"groupName": group, "manualSet": "true", "offsetJsonInfo": place}
    assert web("admin_set_offset", **manual)["result"]
    other = f"{group}_other"
    assert web("admin_clone_offset", sourceGroupName=group, targetGroupName=other)["result"]
    result = web.query_one("admin_query_offset", groupName=other)
    assert result["subInfo"][0]["offsets"] == [
        {"partitionId": 0, "curOffset": 1, "flightOffset": 1, "offsetLag": 2, "offsetMax": 3}
    ]
    assert received(web, other, topic) == [b"1", b"2"]

    to_end = {"groupName": group, "topicName": topic, "manualSet": "false"}
    assert web("admin_set_offset", **to_end)["result"]
    assert (
        web("admin_query_offset", groupName=group)["dataSet"][0]["subInfo"][0]["offsets"][0][
            "curOffset"
        ]
        == 3
    )
    assert web("admin_rmv_offset", groupName=group)["result"]
    assert web("admin_query_offset", groupName=group)["dataSet"] == []
    assert group not in web("admin_query_group")["dataSet"][0]["groupName"]
    assert len(received(web, group, topic)) == 3


@pytest.mark.parametrize(
    "text", ["x", "[]", '{"1:t":0}', '{"1:none:0":0}', '{"1:t:0":-1}', '{"1:t:0":"a"}']
)
def test_places_that_are_none_are_refused(web, group, text):
    response = web("admin_set_offset", groupName=group, manualSet="true", offsetJsonInfo=text)

    assert (response["result"], response["errCode"]) == (False, 400)


def test_current_consumers_are_returned(web, topic, group):
    write(web, topic, 1)
    with reading(web, group, topic) as consumer:
        consumer.confirm(consumer.get(10))

        assert web.query_one("admin_query_sub_info", groupName=group) == {
            "consumeGroup": group,
            "topicSet": [topic],
            "consumerNum": 1,
        }
        detail = web("admin_query_consume_group_detail", consumeGroup=group)
        (member,) = detail["data"]
        assert (detail["isBandConsume"], member["parInfo"][0]["partId"]) == ("unbound", 0)
        read = web.query_one("admin_query_consumer_regmap", groupName=group)
        assert read["Partition"] == f"{group}:{topic}:0"
        assert read["Consumer"] == member["consumerId"]
        known = web.query_one("admin_query_broker_all_consumer_info", groupName=group)
        assert (known["zkOffset"], known["isRegOk"]) == (1, True)
        by_topic = web.query_one("admin_query_group_info_by_topic", topicName=topic)
        assert by_topic["groupSet"] == [group]
        divided = web("admin_query_group", divide="true")["dataSet"]
        assert group in divided[0]["groupName"]
    assert web("admin_query_sub_info", groupName=group)["data"] == []
