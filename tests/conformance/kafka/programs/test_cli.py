"""The command line on our server, and with TRILOGUE_TEST_REAL=1 the same on a real Kafka."""

from __future__ import annotations

import pytest

from tests.cli.kafka_cli import Shell
from tests.conformance.kafka.families.families import eventually
from trilogue.client.kafka.sync import KafkaClient


@pytest.fixture
def shell(address: str) -> Shell:
    return Shell(address)


def test_topics_are_made_described_changed_and_deleted(shell: Shell, topic: str):
    shell.run("topics", "create", topic, "-p", "2", "--set", "retention.ms=3600000")
    shell.run("topics", "create", topic, "--if-missing")
    shell.run("topics", "alter", topic, "-p", "3", "--set", "cleanup.policy=compact")
    shell.run("topics", "alter", topic, "--unset", "retention.ms")

    rows = {row["topic"]: row for row in shell.json("topics", "list", "--long", topic)}
    [response] = shell.json("topics", "describe", topic)

    assert rows[topic] | {"size_bytes": 0} == {
        "topic": topic, "partitions": 3, "replication": 1, "messages": 0, "size_bytes": 0,
    }  # fmt: skip
    assert [row["partition"] for row in response["partitions"]] == [0, 1, 2]
    settings = {row["setting"]: row["value"] for row in response["settings"]}
    assert settings.get("cleanup.policy") == "compact"
    assert "retention.ms" not in settings

    assert "Confirm with --yes" in shell.refused("topics", "delete", topic, code=2)
    assert shell.lines("topics", "delete", topic, "--yes") == [f"deleted {topic}"]
    assert f"no topic {topic}" in shell.refused("topics", "describe", topic)
    shell.run("topics", "delete", topic, "--yes", "--if-there")


def test_a_topic_that_is_not_there_is_named_with_those_that_are_near(shell: Shell, topic: str):
    shell.run("topics", "create", topic)

    assert f"did you mean {topic}" in shell.refused("topics", "describe", f"{topic}x")
    assert f"did you mean {topic}" in shell.refused("consume", f"{topic}x")
    assert f"did you mean {topic}" in shell.refused("produce", f"{topic}x", stdin="one\n")


def test_refused_command_advises_what_to_do(shell: Shell, topic: str):
    shell.run("topics", "create", topic, "-p", "2")

    assert "topics alter" in shell.refused("topics", "create", topic)
    assert "INVALID_PARTITIONS" in shell.refused("topics", "alter", topic, "-p", "1")
    assert "INVALID_CONFIG" in shell.refused("topics", "alter", topic, "--set", "no.such=1")


def test_lines_are_sent_and_read_back_in_order(shell: Shell, topic: str):
    shell.run("topics", "create", topic)
    numbers = [str(one) for one in range(2000)]

    shell.run("produce", topic, "--codec", "gzip", stdin="\n".join(numbers))

    assert shell.lines("consume", topic) == numbers
    assert shell.lines("consume", topic, "--last", "10") == numbers[-10:]
    assert shell.lines("consume", topic, "--from", "5", "--until", "8") == ["5", "6", "7"]
    assert shell.lines("consume", topic, "--from", "-1h", "--count", "3") == ["0", "1", "2"]
    assert shell.lines("consume", topic, "--from", "2100-01-01") == []
    assert shell.lines("consume", topic, "--until", "-1h") == []
    assert shell.lines("consume", topic, "--from", "end") == []


def test_json_goes_there_and_comes_back_the_same(shell: Shell, topic: str):
    shell.run("topics", "create", topic)
    sent = """\
{"key": "k", "value": "v", "timestamp": 1700000000000}
{"key_base64": "/w==", "value": null, "timestamp": 1700000000001}
{"value_base64": "/wA=", "timestamp": 5, "headers": [{"name": "h", "value": "1"}]}
"""

    shell.run("produce", topic, "--json", stdin=sent)
    reported = shell.objects("consume", topic)
    shell.run("produce", topic, "--json", stdin=shell.run("consume", topic, "--json").stdout)
    again = shell.objects("consume", topic, "--from", "3")

    assert [one["offset"] for one in reported] == [0, 1, 2]
    assert reported[0] | {"key": "k", "value": "v", "timestamp": 1700000000000} == reported[0]
    assert (reported[1]["key_base64"], reported[1]["value"]) == ("/w==", None)
    assert reported[2]["value_base64"] == "/wA="
    assert reported[2]["headers"] == [{"name": "h", "value": "1"}]
    changed = [{**one, "offset": one["offset"] + 3} for one in reported]
    assert changed == again


def test_keys_partitions_headers_and_tombstones(shell: Shell, topic: str):
    shell.run("topics", "create", topic, "-p", "3")

    shell.run("produce", topic, "-K", ":", "-H", "from=here", "-Z", stdin="a:1\nb:\n")
    shell.run("produce", topic, "-p", "2", "--key", "c", "--value", "3", "--acks", "1")

    form = "{key}={value} {headers}"
    assert sorted(shell.lines("consume", topic, "--format", form)) == [
        "a=1 from=here", "b= from=here", "c=3 ",
    ]  # fmt: skip
    assert "c\t3" in shell.lines("consume", topic, "-p", "2", "--keys")
    values = {one["key"]: one["value"] for one in shell.objects("consume", topic)}
    assert values == {"a": "1", "b": None, "c": "3"}


def test_unacknowledged_record_is_reported_with_exit_code_1(shell: Shell, topic: str):
    shell.run("topics", "create", topic, "--set", "max.message.bytes=1000")

    output = shell.refused("produce", topic, stdin="small\n" + "x" * 5000 + "\n")

    assert "MESSAGE_TOO_LARGE" in output
    assert "stdin:2" in output


def test_a_group_goes_on_where_it_was(shell: Shell, topic: str):
    shell.run("topics", "create", topic)
    shell.run("produce", topic, stdin="1\n2\n3\n4\n")

    assert shell.lines("consume", topic, "--group", topic, "--count", "3") == ["1", "2", "3"]
    assert shell.lines("consume", topic, "--group", topic) == ["4"]
    assert shell.lines("consume", topic, "--group", topic) == []


def test_messages_before_a_place_are_deleted(shell: Shell, topic: str):
    shell.run("topics", "create", topic)
    shell.run("produce", topic, stdin="1\n2\n3\n4\n")

    assert "Delete 3 messages" in shell.refused("topics", "trim", topic, "--before", "3", code=2)
    shell.run("topics", "trim", topic, "--before", "3", "--yes")

    assert shell.lines("consume", topic) == ["4"]
    assert "nothing" in shell.run("topics", "trim", topic, "--before", "-1h").stdout


def test_groups_are_listed_described_moved_and_deleted(shell: Shell, topic: str):
    shell.run("topics", "create", topic, "-p", "2")
    shell.run("produce", topic, "-p", "0", stdin="1\n2\n3\n")
    shell.lines("consume", topic, "--group", topic)

    [row] = shell.json("groups", "list", topic)
    [response] = shell.json("groups", "describe", topic)
    shown = shell.json("groups", "reset", topic, "-t", f"{topic}:0", "--to", "1")
    kept = shell.json("groups", "describe", topic)
    shell.run("groups", "reset", topic, "--all-topics", "--shift-by", "-2", "--execute")
    [moved] = shell.json("groups", "describe", topic)

    assert row["group"] == topic
    assert response["state"] == "Empty"
    assert [(one["position"], one["lag"]) for one in response["partitions"]] == [(3, 0), (0, 0)]
    assert [(one["position"], one["new"]) for one in shown] == [(3, 1)]
    assert kept == [response]
    assert [(one["position"], one["lag"]) for one in moved["partitions"]] == [(1, 2), (0, 0)]
    assert shell.lines("consume", topic, "--group", topic) == ["2", "3"]

    shell.run("groups", "delete-offsets", topic, "-t", f"{topic}:1", "--yes")
    [fewer] = shell.json("groups", "describe", topic)
    assert [one["partition"] for one in fewer["partitions"]] == [0]

    assert shell.lines("groups", "delete", topic, "--yes") == [f"deleted {topic}"]
    assert f"no group {topic}" in shell.refused("groups", "describe", topic)


def test_a_group_with_members_is_shown_with_them_and_not_moved(
    shell: Shell, address: str, topic: str
):
    shell.run("topics", "create", topic)

    with KafkaClient(address, client_id="reader") as client:
        consumer = client.consumer(topic, group=topic)
        consumer.poll(0.1)
        eventually(lambda: len(consumer.assignment), 1)
        [response] = shell.json("groups", "describe", topic)
        output = shell.refused("groups", "reset", topic, "-t", topic, "--to", "end", "--execute")
        refused = shell.refused("groups", "delete", topic, "--yes")

    assert [(one["client"], len(one["assignment"])) for one in response["members"]] == [
        ("reader", 1)
    ]
    assert response["partitions"][0]["client"] == "reader"
    assert "stop them first" in output
    assert "NON_EMPTY_GROUP" in refused


def test_a_group_is_reset_by_time_before_any_client_read(shell: Shell, topic: str):
    shell.run("topics", "create", topic)
    rows = '{"value": "old", "timestamp": 1000}\n{"value": "new", "timestamp": 2000}\n'
    shell.run("produce", topic, "--json", stdin=rows)

    shell.run("groups", "reset", topic, "-t", topic, "--to", "@1500", "--execute")

    assert shell.lines("consume", topic, "--group", topic) == ["new"]


def test_subscriptions_of_a_kafka_cluster_are_its_groups(shell: Shell, topic: str):
    shell.run("topics", "create", topic)
    shell.run("produce", topic, stdin="1\n2\n3\n")
    shell.run("groups", "reset", topic, "-t", topic, "--to", "1", "--execute")

    [row] = shell.json("subscriptions", "list", topic, "--http", "off")
    [part] = shell.json("subscriptions", "describe", topic, "--http", "off")

    assert (row["subscription"], row["protocol"], row["backlog"]) == (topic, "kafka", 2)
    assert (part["partition"], part["position"], part["end"], part["backlog"]) == (0, 1, 3, 2)


def test_names_are_completed_from_the_cluster(shell: Shell, topic: str):
    shell.run("topics", "create", topic)
    shell.run("groups", "reset", f"{topic}-g", "-t", topic, "--to", "end", "--execute")

    assert shell.lines("complete", "--line", f"trilogue consume {topic[:-1]}")[0] == topic
    assert shell.lines("complete", "--words", "groups", "describe", topic) == [f"{topic}-g"]
