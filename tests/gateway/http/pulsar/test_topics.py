"""Topics and subscriptions over HTTP, with PyPI's pulsar-client as producer and consumer."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pulsar
import pytest

from tests.gateway.http.admin_client import Admin, read_all

BATCH = 5


@pytest.fixture(scope="module")
def client(admin: Admin) -> Iterator[pulsar.Client]:
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    made = pulsar.Client(
        f"pulsar://{admin.server.doors['pulsar']}", operation_timeout_seconds=30, logger=quiet
    )
    yield made
    made.close()


@pytest.fixture
def name(admin: Admin, request: pytest.FixtureRequest) -> str:
    """The test's own namespace."""
    return admin.namespace(request.node.name.replace("[", "-").replace("]", "")[-60:])


def fill(client: pulsar.Client, topic: str) -> None:
    """Publish a batch of five, and one message by itself."""
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=10_000
    )
    for number in range(BATCH):
        producer.send_async(b"m%d" % number, None, partition_key="k")
    producer.flush()
    producer.close()
    producer = client.create_producer(topic, batching_enabled=False)
    producer.send(b"single", properties={"x": "y\r\nü"}, event_timestamp=5)
    producer.close()


def test_a_topic_is_made_once_by_its_bare_name(admin: Admin, name: str):
    topic = f"persistent/{name}/t"

    assert admin("PUT", topic) == (204, None)
    assert admin("PUT", topic) == (409, {"reason": "This topic already exists"})
    assert admin("PUT", f"{topic}/partitions", 2)[0] == 409
    assert admin.get(f"{topic}/partitions") == {"partitions": 0, "deleted": False}
    assert admin.get(f"persistent/{name}") == [f"persistent://{name}/t"]
    assert admin.get(f"persistent/{name}/partitioned") == []
    assert admin("GET", f"{topic}/partitioned-stats")[0] == 404
    assert admin("POST", f"{topic}/partitions", 2)[0] == 409
    assert admin("DELETE", f"{topic}/partitions")[0] == 409
    assert admin("DELETE", topic) == (204, None)
    assert admin("DELETE", topic) == (404, {"reason": f"Topic persistent://{name}/t not found"})


def test_the_number_of_partitions_may_stand_in_a_string(admin: Admin, name: str):
    topic = f"persistent/{name}/t"

    assert admin("PUT", f"{topic}/partitions", "2") == (204, None)
    assert admin("POST", f"{topic}/partitions", "3") == (204, None)

    assert admin.get(f"{topic}/partitions") == {"partitions": 3, "deleted": False}
    for wrong in ("", "x", "-1", "1" * 20, True, None):
        assert admin("POST", f"{topic}/partitions", wrong)[0] == 400


def test_a_topic_has_as_many_partitions_as_are_requested(admin: Admin, name: str):
    topic = f"persistent/{name}/t"

    assert admin("PUT", f"{topic}/partitions", 2) == (204, None)
    assert admin("PUT", f"{topic}/partitions", 2)[0] == 409
    assert admin("POST", f"{topic}/partitions", 1)[0] == 422
    assert admin("POST", f"{topic}/partitions", 3) == (204, None)
    assert admin.get(f"{topic}/partitions")["partitions"] == 3
    assert admin.get(f"namespaces/{name}/topics") == [
        f"persistent://{name}/t-partition-{index}" for index in range(3)
    ]
    assert admin.get(f"persistent/{name}/partitioned") == [f"persistent://{name}/t"]
    assert admin("GET", f"{topic}/stats")[0] == 404
    assert admin.get(f"{topic}-partition-2/stats")["storageSize"] == 0
    assert admin("GET", f"{topic}-partition-3/stats")[0] == 404
    assert len(admin.get(f"{topic}/partitioned-stats")["partitions"]) == 3
    assert admin("DELETE", topic)[0] == 409
    assert admin("DELETE", f"{topic}/partitions") == (204, None)
    assert admin.get(f"namespaces/{name}/topics") == []


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("t/partitions", 0, 406),
        ("t/partitions", -3, 406),
        ("t/partitions", "three", 400),
        ("t/partitions", True, 400),
        ("t/partitions", 10_001, 412),
        ("t-partition-0", ..., 412),
        ("t-partition-0/partitions", 2, 412),
        ("bad%07name", ..., 412),
    ],
)
def test_a_topic_that_cannot_be_is_refused(admin: Admin, path: str, body: object, status: int):
    assert admin("PUT", f"persistent/public/default/{path}", body)[0] == status


def test_a_topic_with_clients_is_deleted_only_by_force(
    admin: Admin, client: pulsar.Client, name: str
):
    topic = f"persistent://{name}/t"
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)

    assert admin("DELETE", f"persistent/{name}/t") == (
        412,
        {"reason": "Topic has 2 connected producers/consumers"},
    )
    assert admin("DELETE", f"persistent/{name}/t/subscription/s")[0] == 412
    admin.do("POST", f"namespaces/{name}/autoTopicCreation", {"allowAutoTopicCreation": False})
    assert admin("DELETE", f"persistent/{name}/t?force=true") == (204, None)
    assert admin("GET", f"persistent/{name}/t/stats")[0] == 404
    producer.close()
    consumer.close()


def test_stats_describe_producers_and_subscriptions(admin: Admin, client: pulsar.Client, name: str):
    topic, path = f"persistent://{name}/t", f"persistent/{name}/t"
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, consumer_name="me")
    producer = client.create_producer(topic, producer_name="writer", batching_enabled=False)
    producer.send(b"x")
    consumer.acknowledge(consumer.receive(60_000))
    producer.send(b"y")
    consumer.receive(60_000)

    result = admin.get(f"{path}/stats")

    assert (result["msgInCounter"], result["storageSize"] > 0) == (2, True)
    (publisher,) = result["publishers"]
    assert (publisher["producerName"], publisher["accessMode"]) == ("writer", "Shared")
    subscription = result["subscriptions"]["s"]
    assert (subscription["type"], subscription["durable"]) == ("Shared", True)
    assert subscription["msgOutCounter"] == 2
    assert [each["consumerName"] for each in subscription["consumers"]] == ["me"]
    internal = admin.get(f"{path}/internalStats")
    assert internal["state"] == "LedgerOpened"
    assert list(internal["cursors"]) == ["s"]
    assert admin.get(f"{path}/internal-info")["ledgers"][0]["ledgerId"] > 0
    producer.close()
    consumer.close()


def test_single_messages_are_shown(admin: Admin, client: pulsar.Client, name: str):
    path = f"persistent/{name}/t"
    admin.do("PUT", f"{path}/subscription/s")
    fill(client, f"persistent://{name}/t")
    last = admin.get(f"{path}/lastMessageId")
    ledger = last["ledgerId"]

    batch = admin.request("GET", f"{path}/subscription/s/position/1")
    single = admin.request("GET", f"{path}/ledger/{ledger}/entry/{BATCH}")

    assert last == {
        "ledgerId": ledger, "entryId": BATCH, "partitionIndex": -1, "batchIndex": -1,
        "batchSize": 0,
    }  # fmt: skip
    assert batch.headers["X-Pulsar-num-batch-message"] == str(BATCH)
    assert batch.headers["X-Pulsar-Message-ID"] == f"{ledger}:0"
    assert batch.content.endswith(b"m4")
    assert single.content == b"single"
    assert single.headers["X-Pulsar-PROPERTY"].startswith('{"x":"y')
    assert single.headers["X-Pulsar-event-time"] == "1970-01-01T00:00:00.005Z"
    assert admin("GET", f"{path}/subscription/s/position/3") == (
        404,
        {"reason": "Message not found"},
    )
    assert admin("GET", f"{path}/ledger/{ledger}/entry/1")[0] == 404, "inside a batch"
    assert admin("GET", f"{path}/ledger/{ledger}/entry/99999999999999999999")[0] == 404
    assert admin("GET", f"{path}/ledger/x/entry/0")[0] == 400
    first = f"{path}/examinemessage?initialPosition=earliest&messagePosition=1"
    assert admin.request("GET", first).headers["X-Pulsar-Message-ID"] == f"{ledger}:0"
    assert admin.request("GET", f"{path}/examinemessage").content == b"single"
    second = admin.request("GET", f"{path}/examinemessage?messagePosition=2")
    assert second.headers["X-Pulsar-Message-ID"] == f"{ledger}:0"
    assert admin("GET", f"{path}/examinemessage?messagePosition=3")[0] == 404
    assert admin("GET", f"{path}/examinemessage?messagePosition=0")[0] == 412
    assert admin.get(f"{path}/messageid/0")["entryId"] == 0
    last = admin.get(f"{path}/lastMessageId")["entryId"]
    assert admin.get(f"{path}/messageid/9999999999999")["entryId"] > last


def test_subscriptions_are_created_at_the_given_position(
    admin: Admin, client: pulsar.Client, name: str
):
    topic, path = f"persistent://{name}/t", f"persistent/{name}/t"
    fill(client, topic)
    ledger = admin.get(f"{path}/lastMessageId")["ledgerId"]
    everything = [b"m%d" % number for number in range(BATCH)] + [b"single"]

    admin.do("PUT", f"{path}/subscription/latest")
    admin.do("PUT", f"{path}/subscription/earliest", {"ledgerId": -1, "entryId": -1})
    admin.do("PUT", f"{path}/subscription/at", {"ledgerId": ledger, "entryId": 0})
    behind = {"ledgerId": ledger, "entryId": 0, "isExcluded": True}
    admin.do("PUT", f"{path}/subscription/behind", behind)

    assert admin("PUT", f"{path}/subscription/latest")[0] == 409
    assert admin.get(f"{path}/subscriptions") == ["at", "behind", "earliest", "latest"]
    assert read_all(admin, client, topic, "latest") == []
    assert read_all(admin, client, topic, "earliest") == everything
    assert read_all(admin, client, topic, "at") == everything
    assert read_all(admin, client, topic, "behind") == [b"single"]


def test_subscriptions_are_moved(admin: Admin, client: pulsar.Client, name: str):
    topic, path = f"persistent://{name}/t", f"persistent/{name}/t"
    one = f"{path}/subscription/s"
    admin.do("PUT", one)
    before_ms = int(time.time() * 1000)
    fill(client, topic)
    ledger = admin.get(f"{path}/lastMessageId")["ledgerId"]

    admin.do("POST", f"{one}/skip/2")
    skipped = read_all(admin, client, topic, "s")
    admin.do("POST", f"{one}/skip_all")
    nothing = read_all(admin, client, topic, "s")
    admin.do("POST", f"{one}/resetcursor/{before_ms}")
    by_time = read_all(admin, client, topic, "s")
    admin.do("POST", f"{one}/resetcursor", {"ledgerId": ledger, "entryId": BATCH})
    by_id = read_all(admin, client, topic, "s")
    admin.do("POST", f"{one}/resetcursor", {"ledgerId": -1, "entryId": -1})
    from_first = read_all(admin, client, topic, "s")
    admin.do("POST", f"{one}/resetcursor/9999999999999")
    from_last = read_all(admin, client, topic, "s")

    assert skipped == [b"m2", b"m3", b"m4", b"single"]
    assert (nothing, by_id, from_last) == ([], [b"single"], [])
    assert len(by_time) == len(from_first) == BATCH + 1
    for missing in ("skip/2", "skip_all", "resetcursor/0", "expireMessages/0"):
        assert admin("POST", f"{path}/subscription/none/{missing}")[0] == 404


def test_expire_messages_skips_messages_of_the_given_age(
    admin: Admin, client: pulsar.Client, name: str
):
    topic, path = f"persistent://{name}/t", f"persistent/{name}/t"
    for each in ("a", "b"):
        admin.do("PUT", f"{path}/subscription/{each}")
    fill(client, topic)

    admin.do("POST", f"{path}/subscription/a/expireMessages/3600")
    assert len(read_all(admin, client, topic, "a")) == BATCH + 1
    time.sleep(0.01)  # by design: the messages must have an age
    admin.do("POST", f"{path}/all_subscription/expireMessages/0")

    assert (read_all(admin, client, topic, "a"), read_all(admin, client, topic, "b")) == ([], [])


def test_a_connected_consumer_goes_on_where_its_subscription_was_put(
    admin: Admin, client: pulsar.Client, name: str
):
    topic, path = f"persistent://{name}/t", f"persistent/{name}/t"
    consumer = client.subscribe(topic, "s")
    fill(client, topic)
    for _ in range(BATCH + 1):
        consumer.acknowledge(consumer.receive(60_000))

    admin.do("POST", f"{path}/subscription/s/resetcursor", {"ledgerId": -1, "entryId": -1})

    assert consumer.receive(60_000).data() == b"m0"
    consumer.close()


def test_subscriptions_are_deleted_by_force_with_consumers(
    admin: Admin, client: pulsar.Client, name: str
):
    topic, path = f"persistent://{name}/t", f"persistent/{name}/t"
    consumer = client.subscribe(topic, "s")

    assert admin("DELETE", f"{path}/subscription/s") == (
        412,
        {"reason": "Subscription has active connected consumers"},
    )
    consumer.close()
    assert admin("DELETE", f"{path}/subscription/s") == (204, None)
    assert admin("DELETE", f"{path}/subscription/s")[0] == 404
    assert admin.get(f"{path}/subscriptions") == []


def test_texts_of_a_subscription_are_kept(admin: Admin, name: str):
    one = f"persistent/{name}/t/subscription/s"
    admin.do("PUT", one, {"ledgerId": -1, "entryId": -1, "properties": {"a": "b"}})

    assert admin.get(f"{one}/properties") == {"a": "b"}
    admin.do("PUT", f"{one}/properties", {"c": "d"})
    assert admin.get(f"{one}/properties") == {"c": "d"}
    assert admin.get(f"persistent/{name}/t/subscriptions") == ["s"]
    assert admin("POST", f"{one}/analyzeBacklog")[1]["entries"] == 0


def test_a_subscription_is_not_replicated(admin: Admin, name: str):
    admin.do("PUT", f"persistent/{name}/t/subscription/s")
    admin.do("PUT", f"persistent/{name}/p/partitions", 2)
    admin.do("PUT", f"persistent/{name}/p/subscription/s")

    at = "subscription/s/replicatedSubscriptionStatus"
    of_parts = {f"persistent://{name}/p-partition-{number}": False for number in (0, 1)}
    assert admin.get(f"persistent/{name}/t/{at}") == {f"persistent://{name}/t": False}
    assert admin.get(f"persistent/{name}/p/{at}") == of_parts
    assert admin("POST", f"persistent/{name}/t/{at}", False) == (204, None)
    assert admin("POST", f"persistent/{name}/t/{at}", True)[0] == 412
    assert admin("GET", f"persistent/{name}/t/{at.replace('/s/', '/none/')}")[0] == 404


def test_an_empty_topic_has_a_next_id_and_nothing_to_examine(admin: Admin, name: str):
    """As at Pulsar 4.0.7."""
    admin.do("PUT", f"persistent/{name}/t")

    assert admin.get(f"persistent/{name}/t/messageid/0")["entryId"] == 0
    for begin in ("earliest", "latest"):
        at = f"persistent/{name}/t/examinemessage?initialPosition={begin}&messagePosition=1"
        assert admin("GET", at)[0] == 412


def test_a_subscription_may_have_any_name(admin: Admin, client: pulsar.Client, name: str):
    topic, path = f"persistent://{name}/t", f"persistent/{name}/t"
    for spelled in ("a/b", "a%2Fb", "größe 1"):
        client.subscribe(topic, spelled).close()

    assert admin.get(f"{path}/subscriptions") == ["a%2Fb", "a/b", "größe 1"]
    admin.do("DELETE", f"{path}/subscription/a%2Fb")
    assert admin.get(f"{path}/subscriptions") == ["a%2Fb", "größe 1"]
    admin.do("DELETE", f"{path}/subscription/a%252Fb")
    admin.do("POST", f"{path}/subscription/gr%C3%B6%C3%9Fe%201/skip_all")
    assert admin.get(f"{path}/subscriptions") == ["größe 1"]
    assert admin("PUT", f"persistent/{name}/a%2Fb")[0] == 412


def test_messages_expire_up_to_an_entry(admin: Admin, client: pulsar.Client, name: str):
    topic, path = f"persistent://{name}/t", f"persistent/{name}/t"
    for each in ("with", "without"):
        admin.do("PUT", f"{path}/subscription/{each}")
    fill(client, topic)
    at = {"ledgerId": admin.get(f"{path}/lastMessageId")["ledgerId"], "entryId": 0}

    admin.do("POST", f"{path}/subscription/with/expireMessages", at)
    admin.do("POST", f"{path}/subscription/without/expireMessages", {**at, "excluded": True})

    assert read_all(admin, client, topic, "with") == [b"single"]
    assert len(read_all(admin, client, topic, "without")) == BATCH + 1
    status, whole = admin("PUT", f"{path}/backlogSize", {"ledgerId": -1, "entryId": -1})
    _, last = admin("PUT", f"{path}/backlogSize", {**at, "entryId": BATCH})
    assert (status, 0 < last < whole) == (200, True)


def test_a_topic_is_made_with_its_properties(admin: Admin, name: str):
    path = f"persistent/{name}"

    admin.do("PUT", f"{path}/bare", {"a": "b"})
    admin.do("PUT", f"{path}/many/partitions", {"partitions": 2, "properties": {"c": "d"}})

    assert admin.get(f"{path}/bare/properties") == {"a": "b"}
    assert admin.get(f"{path}/many/properties") == {"c": "d"}
    assert len(admin.get(f"{path}/many/partitioned-internalStats")["partitions"]) == 2
    assert admin("PUT", f"{path}/wrong", {"a": 5})[0] == 400


def test_a_topic_with_partitions_has_its_subscriptions_in_each(
    admin: Admin, client: pulsar.Client, name: str
):
    topic, path = f"persistent://{name}/t", f"persistent/{name}/t"
    admin.do("PUT", f"{path}/partitions", 2)
    admin.do("PUT", f"{path}/subscription/s")
    admin.do("POST", f"{path}/partitions", 3)
    producer = client.create_producer(
        topic, message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
        batching_enabled=False,
    )  # fmt: skip
    for number in range(6):
        producer.send(b"%d" % number)
    producer.close()

    backlogs = [
        admin.get(f"{path}-partition-{index}/stats")["subscriptions"]["s"]["msgBacklog"]
        for index in range(3)
    ]

    assert backlogs == [2, 2, 2]
    total = admin.get(f"{path}/partitioned-stats")
    assert (total["subscriptions"]["s"]["msgBacklog"], total["msgInCounter"]) == (6, 6)
    assert sorted(read_all(admin, client, topic, "s")) == [b"%d" % number for number in range(6)]
    assert admin("GET", f"{path}/subscription/s/position/1")[0] == 405
    admin.do("DELETE", f"{path}/subscription/s?force=true")
    assert admin.get(f"{path}/subscriptions") == []


def test_terminate_ends_a_topic_and_returns_its_last_message_id(
    admin: Admin, client: pulsar.Client, name: str
):
    topic, path = f"persistent://{name}/t", f"persistent/{name}/t"
    fill(client, topic)

    status, last = admin("POST", f"{path}/terminate")

    assert (status, last["entryId"]) == (200, BATCH)
    assert admin.get(f"{path}/lastMessageId")["entryId"] == BATCH
    assert admin.get(f"{path}/internalStats")["state"] == "Terminated"
    with pytest.raises(pulsar.TopicTerminated):
        client.create_producer(topic)
    assert admin("POST", f"{path}/terminate")[0] == 200
    assert admin("POST", f"{path}/terminate/partitions")[0] == 409
    assert admin("POST", f"persistent/{name}/none/terminate")[0] == 404


def test_all_partitions_of_a_topic_end_together(admin: Admin, name: str):
    path = f"persistent/{name}/t"
    admin.do("PUT", f"{path}/partitions", 2)

    assert admin("POST", f"{path}/terminate")[0] == 405
    status, last = admin("POST", f"{path}/terminate/partitions")

    assert (status, sorted(last)) == (200, ["0", "1"])
    assert [each["entryId"] for each in last.values()] == [-1, -1]


def test_a_topic_is_emptied(admin: Admin, client: pulsar.Client, name: str):
    topic, path = f"persistent://{name}/t", f"persistent/{name}/t"
    admin.do("PUT", f"{path}/subscription/s")
    fill(client, topic)

    admin.do("DELETE", f"{path}/truncate")

    assert admin.get(f"{path}/stats")["subscriptions"]["s"]["msgBacklog"] == 0
    assert read_all(admin, client, topic, "s") == []
    fill(client, topic)
    assert len(read_all(admin, client, topic, "s")) == BATCH + 1


def test_clients_come_back_after_an_unload(admin: Admin, client: pulsar.Client, name: str):
    topic, path = f"persistent://{name}/t", f"persistent/{name}/t"
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)

    admin.do("PUT", f"{path}/unload")
    producer.send(b"after")
    assert consumer.receive(60_000).data() == b"after"
    admin.do("PUT", f"namespaces/{name}/unload")
    producer.send(b"again")

    assert [consumer.receive(60_000).data() for _ in range(2)] == [b"after", b"again"]
    producer.close()
    consumer.close()


def test_a_client_with_an_http_address_finds_its_topics(admin: Admin, name: str):
    """Service discovery over HTTP: lookup."""
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(
        f"http://{admin.server.doors['http']}", operation_timeout_seconds=30, logger=quiet
    )
    admin.do("PUT", f"persistent/{name}/many/partitions", 2)
    for topic in (f"persistent://{name}/bare", f"persistent://{name}/many"):
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic)
        producer.send(b"by http")
        assert consumer.receive(60_000).data() == b"by http"
    assert len(client.get_topic_partitions(f"persistent://{name}/many")) == 2
    client.close()


def test_shadow_topics_and_replicated_subscriptions_are_refused(admin: Admin, name: str):
    shadow = {"PULSAR.SHADOW_SOURCE": "persistent://public/default/other"}

    assert admin("PUT", f"persistent/{name}/shadow", shadow)[0] == 412
    admin.do("PUT", f"persistent/{name}/plain")
    assert admin("PUT", f"persistent/{name}/plain/subscription/s?replicated=true")[0] == 412
    assert admin.get(f"persistent/{name}/plain/subscriptions") == []


def test_peek_creates_a_subscription_at_the_beginning(admin: Admin, name: str):
    path = f"persistent/{name}/peeked"
    admin.do("PUT", path)

    assert admin("GET", f"{path}/subscription/s/position/1")[0] == 404
    assert admin.get(f"{path}/subscriptions") == ["s"]


def test_statistics_leave_out_excluded_clients(admin: Admin, name: str):
    topic = f"persistent://{name}/excluding"
    client = pulsar.Client(f"pulsar://{admin.server.doors['pulsar']}")
    client.subscribe(topic, "s")
    client.create_producer(topic)
    path = f"persistent/{name}/excluding/stats"

    whole = admin.get(path)
    rest = admin.get(f"{path}?excludePublishers=true&excludeConsumers=true")
    client.close()

    assert (len(whole["publishers"]), len(whole["subscriptions"]["s"]["consumers"])) == (1, 1)
    assert (rest["publishers"], rest["subscriptions"]["s"]["consumers"]) == ([], [])
    assert whole["topicCreationTimeStamp"] > 0
    assert whole["lastPublishTimestamp"] == 0


def test_statistics_have_the_time_of_the_last_message(admin: Admin, name: str):
    client = pulsar.Client(f"pulsar://{admin.server.doors['pulsar']}")
    before_ms = int(time.time() * 1000)
    client.create_producer(f"persistent://{name}/timed").send(b"m")
    client.close()

    assert admin.get(f"persistent/{name}/timed/stats")["lastPublishTimestamp"] >= before_ms
