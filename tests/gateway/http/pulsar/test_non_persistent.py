"""Non-persistent topics over HTTP."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pulsar
import pytest

from tests.gateway.http.admin_client import Admin
from tests.waiting import wait_until


@pytest.fixture
def client(admin: Admin) -> Iterator[pulsar.Client]:
    made = pulsar.Client(f"pulsar://{admin.server.doors['pulsar']}")
    yield made
    made.close()


def test_topics_are_made_listed_and_deleted(admin: Admin):
    name = admin.namespace("passing")
    path, spelled = f"non-persistent/{name}", f"non-persistent://{name}"

    admin.do("PUT", f"{path}/one")
    admin.do("PUT", f"{path}/two/partitions", 2)

    assert admin("PUT", f"{path}/one")[0] == 409
    assert admin("PUT", f"{path}/two/partitions", 2)[0] == 409
    assert admin("PUT", f"{path}/three/partitions", 0)[0] == 406
    assert admin("PUT", "non-persistent/acme/none/one")[0] == 404
    assert admin.get(f"{path}/one/partitions")["partitions"] == 0
    assert admin.get(f"{path}/two/partitions")["partitions"] == 2
    parts = [f"{spelled}/two-partition-0", f"{spelled}/two-partition-1"]
    assert admin.get(path) == [f"{spelled}/one", *parts]
    assert admin.get(f"{path}/partitioned") == [f"{spelled}/two"]
    assert admin.get(f"namespaces/{name}/topics") == []
    assert admin.get(f"namespaces/{name}/topics?mode=ALL") == [f"{spelled}/one", *parts]
    assert admin("POST", f"{path}/two/partitions", 1)[0] == 422
    admin.do("POST", f"{path}/two/partitions", 3)
    assert admin.get(f"{path}/two/partitioned-stats")["metadata"]["partitions"] == 3
    assert admin("DELETE", f"{path}/two")[0] == 409
    assert admin("DELETE", f"namespaces/{name}")[0] == 409
    admin.do("DELETE", f"{path}/two/partitions")
    admin.do("DELETE", f"{path}/one")
    assert admin("GET", f"{path}/one/stats")[0] == 404
    assert admin("GET", f"{path}/two/partitions")[0] == 404
    admin.do("DELETE", f"namespaces/{name}")


def test_a_namespace_is_deleted_with_its_topics_by_force(admin: Admin):
    name = admin.namespace("forced")
    admin.do("PUT", f"non-persistent/{name}/one")
    admin.do("PUT", f"non-persistent/{name}/two/partitions", 2)

    assert admin("DELETE", f"namespaces/{name}?force=true")[0] == 204
    assert name not in admin.get("namespaces/acme")


def test_statistics_count_what_was_dropped(admin: Admin, client: pulsar.Client):
    topic = "public/default/dropping"
    consumer = client.subscribe(
        f"non-persistent://{topic}",
        "s",
        consumer_type=pulsar.ConsumerType.Shared,
        receiver_queue_size=5,
    )
    producer = client.create_producer(f"non-persistent://{topic}", batching_enabled=False)
    for number in range(20):
        producer.send(b"%d" % number)

    found = admin.get(f"non-persistent/{topic}/stats")

    held = found["subscriptions"]["s"]
    assert (found["msgInCounter"], found["storageSize"]) == (20, 0)
    assert held["msgOutCounter"] + held["msgDropCounter"] == 20
    assert held["msgDropCounter"] == found["msgDropCounter"] >= 10
    assert found["msgDropRate"] > 0
    metrics = admin.client.get("/metrics").text
    (line,) = re.findall(r"^trilogue_pulsar_messages_dropped_total (\S+)", metrics, re.MULTILINE)
    assert float(line) >= held["msgDropCounter"]
    assert (held["type"], len(held["consumers"]), len(found["publishers"])) == ("Shared", 1, 1)
    assert admin.get(f"non-persistent/{topic}/internalStats")["numberOfEntries"] == 0
    assert admin("DELETE", f"non-persistent/{topic}")[0] == 412
    consumer.close()


def test_subscriptions_are_listed_and_deleted(admin: Admin, client: pulsar.Client):
    topic = "public/default/listing"
    consumer = client.subscribe(f"non-persistent://{topic}", "s")
    path = f"non-persistent/{topic}"

    assert admin.get(f"{path}/subscriptions") == ["s"]
    assert admin("PUT", f"{path}/subscription/other")[0] == 400
    assert admin("DELETE", f"{path}/subscription/other")[0] == 404
    assert admin("DELETE", f"{path}/subscription/s")[0] == 412
    consumer.close()
    admin.do("DELETE", f"{path}/subscription/s")
    assert admin.get(f"{path}/subscriptions") == []


def test_clients_connect_again_after_an_unload(admin: Admin, client: pulsar.Client):
    topic = "public/default/unloading"
    consumer = client.subscribe(f"non-persistent://{topic}", "s")
    producer = client.create_producer(f"non-persistent://{topic}")

    admin.do("PUT", f"non-persistent/{topic}/unload")

    def is_back() -> bool:
        found = admin.get(f"non-persistent/{topic}/stats")
        consumers = found["subscriptions"].get("s", {}).get("consumers")
        return bool(consumers and found["publishers"])

    wait_until(is_back, "producer and consumer")
    producer.send(b"after")
    assert consumer.receive(60_000).data() == b"after"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "subscription/s/skip_all"),
        ("GET", "subscription/s/position/1"),
        ("GET", "lastMessageId"),
        ("PUT", "compaction"),
        ("POST", "retention"),
        ("GET", "permissions"),
        ("POST", "terminate"),
    ],
)
def test_requests_for_stored_messages_or_topic_policies_are_refused(
    admin: Admin, method: str, path: str
):
    status, response = admin(method, f"non-persistent/public/default/refusing/{path}")

    assert (status, path in response["reason"]) == (405, True)
