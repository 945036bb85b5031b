"""TubeMQ's web API where ACLs decide: what is listed, what is refused, and the audit log."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.security.live_node import LiveNode
from trilogue.broker.access.authorizer import Operation, ResourceKind

TOPIC, GROUP = ResourceKind.TOPIC, ResourceKind.GROUP
ANONYMOUS = "ANONYMOUS"
OURS = "public/default/ours"


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    folder = tmp_path_factory.mktemp("web")
    with LiveNode(
        folder, {"access.authorize": "true"}, ("tubemq-master", "tubemq-broker", "http")
    ) as made:
        for name in ("ours", "theirs"):
            made.make_topic(name)
        for operation in (
            Operation.DESCRIBE,
            Operation.DESCRIBE_SETTINGS,
            Operation.ALTER_SETTINGS,
        ):
            made.allow(ANONYMOUS, operation, TOPIC, OURS)
            made.allow(ANONYMOUS, operation, GROUP, "mine")
        yield made


@pytest.fixture
def web(node):
    token = (node.node.storage.directory.path / "tubemq-web-token").read_text().strip()
    with httpx.Client(base_url=f"http://{node.doors['http']}", timeout=60) as client:

        def call(method, *, token=token, **params):
            more = {"confModAuthToken": token, "createUser": "admin", "modifyUser": "admin"}
            given = {"method": method, **more, **params}
            return client.get("/webapi.htm", params=given).json()

        yield call


def new_lines(node, before):
    lines = node.audit_log.read_text().splitlines()[before:]
    return [json.loads(line) for line in lines]


def count_lines(node):
    return len(node.audit_log.read_text().splitlines())


def test_lists_hide_topics_without_permission_and_without_audit_lines(node, web):
    before = count_lines(node)

    found = web("admin_query_topic_info")

    assert [each["topicName"] for each in found["data"]] == ["ours"]
    assert new_lines(node, before) == []


def test_a_named_topic_of_others_is_refused_with_a_line(node, web):
    before = count_lines(node)

    found = web("admin_query_topic_info", topicName="theirs")

    assert not found["result"]
    assert "is denied" in found["errMsg"]
    (line,) = new_lines(node, before)
    assert (line["event"], line["protocol"]) == ("refused", "http")
    assert line["resource"] == "topic public/default/theirs"


@pytest.mark.parametrize(("group", "topic"), [("mine", "theirs"), ("others", "ours")])
def test_consumer_group_authorization_requires_permission_for_group_and_topic(
    node, web, group, topic
):
    before = count_lines(node)

    found = web("admin_add_authorized_consumergroup_info", groupName=group, topicName=topic)

    assert not found["result"] or not found["data"][0]["success"]
    assert node.node.storage.broker.rules.consume(group, f"public/default/{topic}") is None
    assert {line["event"] for line in new_lines(node, before)} == {"refused"}


def test_a_change_is_a_line_of_the_audit_log_without_the_token(node, web):
    before = count_lines(node)
    web("admin_set_topic_authorize_control", topicName="ours", isEnable="true")
    web("admin_add_authorized_consumergroup_info", groupName="mine", topicName="ours")

    lines = new_lines(node, before)
    assert [(line["event"], line["operation"], line["resource"]) for line in lines] == [
        ("done", "admin_set_topic_authorize_control", f"topic {OURS}"),
        ("done", "admin_add_authorized_consumergroup_info", "group mine"),
    ]
    assert {line["by"] for line in lines} == {"admin"}
    token = (node.node.storage.directory.path / "tubemq-web-token").read_text().strip()
    assert token not in node.audit_log.read_text()


def test_rules_of_groups_are_listed_where_topic_and_group_may_be_seen(node, web):
    web("admin_add_black_consumergroup_info", groupName="mine", topicName="ours")
    node.allow(ANONYMOUS, Operation.DESCRIBE_SETTINGS, GROUP, "others")

    found = web("admin_query_black_consumer_group_info")
    assert [(each["topicName"], each["groupName"]) for each in found["data"]] == [("ours", "mine")]

    node.withdraw(ANONYMOUS, Operation.DESCRIBE, TOPIC, OURS)
    node.withdraw(ANONYMOUS, Operation.ALTER_SETTINGS, TOPIC, OURS)
    assert web("admin_query_black_consumer_group_info")["data"] == []
    for operation in (Operation.DESCRIBE, Operation.ALTER_SETTINGS):
        node.allow(ANONYMOUS, operation, TOPIC, OURS)


@pytest.mark.parametrize("token", ["", "a guess"])
def test_a_wrong_token_changes_nothing_and_is_a_failed_login(node, web, token):
    before = count_lines(node)

    found = web("admin_set_topic_authorize_control", token=token, topicName="ours")

    assert not found["result"]
    events = [line["event"] for line in new_lines(node, before)]
    assert events == (["login.failed"] if token else [])
