"""Policies of a topic and of a namespace, by what pulsar-client notices of them.

TTL, retention and backlog quotas are in test_retention.py, rates in across/test_rates.py. The size
of a topic's messages is not here: the library sends one that is too large again and again.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import NamedTuple

import pulsar as library
import pytest

from tests.brokers import PulsarBroker
from tests.conformance.pulsar.pulsar_admin import Admin, AdminError
from tests.waiting import wait_until

EARLIEST, SHARED = library.InitialPosition.Earliest, library.ConsumerType.Shared
SILENCE_MS = 1_000  # nothing comes, as far as a test can wait for it
WAIT_MS = 60_000
FIRST = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}  # a subscription at the start
_numbers = itertools.count()


class Place(NamedTuple):
    """A namespace of its own, a topic in it, and where the policy is set."""

    admin: Admin
    client: library.Client
    namespace: str
    topic: str
    level: str

    def set(self, name: str, value: object, topics_name: str = "") -> None:
        path = f"namespaces/{self.namespace}/{name}"
        if self.level == "topic":
            path = f"{self.admin.path(self.topic)}/{topics_name or name}"
        for method in ("POST", "PUT"):  # a few are PUT
            try:
                self.admin.request(method, path, value)
            except AdminError as error:
                if error.status != 405:
                    raise
            else:
                return
        raise AssertionError(f"{path} is set by no method")

    def send(self, count: int) -> None:
        producer = self.client.create_producer(self.topic)
        for number in range(count):
            producer.send(b"%d" % number)
        producer.close()

    def subscribe(self, name: str = "s", **more: object) -> library.Consumer:
        return self.client.subscribe(self.topic, name, initial_position=EARLIEST, **more)


def connect(pulsar: PulsarBroker) -> library.Client:
    return library.Client(
        f"pulsar://{pulsar.address}",
        operation_timeout_seconds=5,
        logger=library.ConsoleLogger(library.LoggerLevel.Error),
    )


@pytest.fixture(params=["topic", "namespace"])
def place(pulsar: PulsarBroker, admin: Admin, request: pytest.FixtureRequest) -> Iterator[Place]:
    namespace = f"public/policies-{os.getpid()}-{next(_numbers)}"
    admin.make_namespace(namespace)
    topic = f"{namespace}/t"
    admin.make(topic)
    client = connect(pulsar)
    yield Place(admin, client, namespace, topic, request.param)
    client.close()


def refused(action: Callable[[], object], words: str) -> None:
    """Until the policy has arrived at a real broker, which is a little later, it is not."""

    def is_refused() -> bool:
        try:
            made = action()
        except library.PulsarException as error:
            return words in str(error)
        close = getattr(made, "close", None)
        if close is not None:
            close()
        return False

    wait_until(is_refused, f"refused with {words}")


def received(consumer: library.Consumer) -> int:
    """How many messages come before there is a silence."""
    count = 0
    while True:
        try:
            consumer.receive(WAIT_MS if count == 0 else SILENCE_MS)
        except library.Timeout:
            return count
        count += 1


def test_producers_are_limited(place: Place):
    place.set("maxProducersPerTopic", 1, "maxProducers")
    first = place.client.create_producer(place.topic)

    refused(lambda: place.client.create_producer(place.topic), "ProducerBusy")
    first.close()
    place.send(1)


def test_consumers_are_limited(place: Place):
    place.set("maxConsumersPerTopic", 1, "maxConsumers")
    first = place.subscribe()

    refused(lambda: place.subscribe("other"), "ConsumerBusy")
    first.close()
    place.subscribe("other").close()


def test_consumers_of_a_subscription_are_limited(place: Place):
    place.set("maxConsumersPerSubscription", 1)
    place.subscribe(consumer_type=SHARED)

    refused(lambda: place.subscribe(consumer_type=SHARED), "ConsumerBusy")
    place.subscribe("other").close()


def test_subscriptions_are_limited(place: Place):
    place.set("maxSubscriptionsPerTopic", 1)
    place.subscribe()

    names = itertools.count()
    refused(lambda: place.subscribe(f"other-{next(names)}"), "NotAllowed")


def test_a_consumer_has_so_many_unacked_messages(place: Place):
    names = "maxUnackedMessagesPerConsumer", "maxUnackedMessagesOnConsumer"
    place.set(names[0], 5, names[1])
    wait_until(lambda: shown(place, *names), "known")
    place.send(20)

    consumer = place.subscribe(consumer_type=SHARED, receiver_queue_size=1)
    wait_until(
        lambda: shown(place, "maxUnackedMessagesPerConsumer", "maxUnackedMessagesOnConsumer")
    )
    assert received(consumer) < 20


def shown(place: Place, name: str, topics_name: str) -> object:
    if place.level == "topic":
        return place.admin.request("GET", f"{place.admin.path(place.topic)}/{topics_name}")
    return place.admin.request("GET", f"namespaces/{place.namespace}/{name}")


def test_types_of_subscriptions_are_refused(place: Place):
    place.set("subscriptionTypesEnabled", ["Exclusive"])

    refused(lambda: place.subscribe("shared", consumer_type=SHARED), "NotAllowed")
    place.subscribe("exclusive").close()


def test_a_subscription_is_not_made_by_its_first_use(place: Place):
    place.set("autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False})

    names = itertools.count()
    refused(lambda: place.subscribe(f"s{next(names)}"), "")  # the client tries again for a while
    place.admin.request("PUT", f"{place.admin.path(place.topic)}/subscription/known", FIRST)
    place.subscribe("known").close()


def test_a_repeated_send_is_dropped(place: Place):
    place.set("deduplication", True, "deduplicationEnabled")
    wait_until(lambda: shown(place, "deduplication", "deduplicationEnabled") is True, "known")
    consumer = place.subscribe()

    def is_dropped() -> bool:
        name = f"p-{next(_numbers)}"
        for _ in range(2):
            producer = place.client.create_producer(place.topic, producer_name=name)
            producer.send(b"again", sequence_id=7)
            producer.close()
        return received(consumer) == 1

    wait_until(is_dropped, "deduplication")


def test_delayed_messages_come_at_once_where_there_is_no_delay(place: Place):
    place.set("delayedDelivery", {"active": False, "tickTime": 1_000})
    consumer = place.subscribe(consumer_type=SHARED)
    producer = place.client.create_producer(place.topic)

    def comes_at_once() -> bool:
        producer.send(b"later", deliver_after=timedelta(hours=1))
        try:
            consumer.receive(SILENCE_MS * 5)
        except library.Timeout:
            return False
        return True

    wait_until(comes_at_once, "no delay")


class _One(library.schema.Record):
    a = library.schema.Integer()


class _Two(library.schema.Record):
    a = library.schema.String()
    b = library.schema.String(required=True)


def test_a_schema_that_does_not_fit_is_refused(place: Place):
    schema = library.schema
    place.set("schemaCompatibilityStrategy", "ALWAYS_INCOMPATIBLE")
    place.client.create_producer(place.topic, schema=schema.AvroSchema(_One)).close()

    refused(
        lambda: place.client.create_producer(place.topic, schema=schema.AvroSchema(_Two)),
        "IncompatibleSchema",
    )
    place.client.create_producer(place.topic, schema=schema.AvroSchema(_One)).close()


def test_a_schema_that_would_not_fit_does_where_all_do(place: Place):
    schema = library.schema
    place.set("schemaCompatibilityStrategy", "ALWAYS_COMPATIBLE")
    place.client.create_producer(place.topic, schema=schema.AvroSchema(_One)).close()

    def is_accepted() -> bool:
        try:
            place.client.create_producer(place.topic, schema=schema.AvroSchema(_Two)).close()
        except library.PulsarException:
            return False
        return True

    wait_until(is_accepted, "accepted")


def test_a_producer_without_a_schema_is_refused(place: Place):
    place.set("schemaValidationEnforced", True)
    schema = library.schema.AvroSchema(_One)
    place.client.create_producer(place.topic, schema=schema).close()

    refused(lambda: place.client.create_producer(place.topic), "IncompatibleSchema")


def test_more_copies_than_nodes_or_foreign_code_is_refused(place: Place):
    if place.level == "namespace":
        pytest.skip("entry filters of a topic")
    with pytest.raises(AdminError):
        place.set("entryFilters", {"entryFilterNames": "of.somebody.Else"})


def test_an_inactive_topic_is_deleted(place: Place):
    policy = {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        "maxInactiveDurationSeconds": 1,
        "deleteWhileInactive": True,
    }
    place.set("inactiveTopicPolicies", policy)
    kept = f"{place.namespace}/kept"
    place.client.subscribe(kept, "s").close()

    def topics() -> object:
        return place.admin.request("GET", f"persistent/{place.namespace}")

    wait_until(lambda: f"persistent://{place.topic}" not in str(topics()), "deletion", 120)
    assert f"persistent://{kept}" in str(topics())


def test_topics_get_partitions_by_policy(place: Place):
    if place.level == "topic":
        pytest.skip("of namespaces")
    policy = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3}
    place.set("autoTopicCreation", policy)

    def has_three() -> bool:
        topic = f"{place.namespace}/n{next(_numbers)}"
        place.client.create_producer(topic).close()
        return len(place.client.get_topic_partitions(topic)) == 3

    wait_until(has_three, "three partitions")
    place.set("autoTopicCreation", {"allowAutoTopicCreation": False})
    refused(
        lambda: place.client.create_producer(f"{place.namespace}/m{next(_numbers)}"), "NotFound"
    )


def test_topics_of_a_namespace_are_limited(place: Place):
    if place.level == "topic":
        pytest.skip("of namespaces")
    place.set("maxTopicsPerNamespace", 2)
    place.client.create_producer(f"{place.namespace}/second").close()

    names = itertools.count()
    with pytest.raises(AdminError) as caught:
        place.admin.make(f"{place.namespace}/third")
    assert caught.value.status == 409
    refused(lambda: place.client.create_producer(f"{place.namespace}/x{next(names)}"), "")


def test_plain_messages_are_refused_where_encrypted_ones_are_required(place: Place):
    if place.level == "topic":
        pytest.skip("of namespaces")
    place.set("encryptionRequired", True)

    refused(lambda: place.client.create_producer(place.topic), "")


def test_a_consumer_subscribes_only_so_often(place: Place, pulsar: PulsarBroker):
    """The first consumer of a client is the same one as that of the client before it."""
    rate = {"subscribeThrottlingRatePerConsumer": 1, "ratePeriodInSecond": 600}
    place.subscribe("first").close()  # it has the number that every client begins with
    place.set("subscribeRate", rate)

    def subscribe() -> None:
        client = connect(pulsar)
        try:
            client.subscribe(place.topic, "s", consumer_name="c")
        finally:
            client.close()

    refused(subscribe, "")
    for _ in range(3):  # these have numbers of their own
        place.subscribe(consumer_name="c").close()


def test_a_topic_is_compacted_above_the_threshold(place: Place):
    place.set("compactionThreshold", 1_000)
    producer = place.client.create_producer(place.topic)

    def is_compacted() -> bool:
        for _ in range(20):
            producer.send(bytes(200), partition_key="k")
        stats = place.admin.stats(place.topic)
        compaction = stats.get("compaction", {})
        return compaction.get("lastCompactionSucceedTimestamp", 0) > 0

    wait_until(is_compacted, "compaction", 150, every=1.0)
