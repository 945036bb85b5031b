"""Non-persistent topics as clients find, create and lose them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from trilogue.broker.errors import PartitionRequired, TopicExists, UnknownTopic
from trilogue.broker.names import NON_PERSISTENT, PulsarName
from trilogue.broker.non_persistent.topics import NonPersistentTopic
from trilogue.broker.topics.lookup import find_auto_creation
from trilogue.gateway.pulsar.non_persistent.dispatcher import NonPersistentDispatcher
from trilogue.gateway.pulsar.producer import Producer

if TYPE_CHECKING:
    from trilogue.gateway.pulsar.services import PulsarServices

PREFIX = NON_PERSISTENT + "://"


def is_non_persistent(spelled: str) -> bool:
    """Whether a client names a non-persistent topic."""
    return spelled.startswith(PREFIX)


async def find_or_create(
    gateway: PulsarServices, name: PulsarName, *, may_create: bool = True
) -> NonPersistentTopic:
    """Return the topic or partition of a name; create it where the policies allow that.

    Raises UnknownTopic, PartitionRequired, NotOwner, or InUse where there are too many.
    """
    topics = gateway.broker.non_persistent
    if gateway.catch_up is not None and topics.find_topic(name) is None:
        await gateway.catch_up()
    if not topics.exists(name) and not topics.partition_count(name.topic):
        if not may_create:
            raise UnknownTopic("the topic does not exist")
        await create_automatically(gateway, name)
    return topics.load(name, gateway.loop.time())


async def create_automatically(gateway: PulsarServices, name: PulsarName) -> None:
    """Create the topic of an unknown name as the namespace's policy says; raises UnknownTopic.

    One without numbered partitions is created when it is loaded.
    """
    topics = gateway.broker.non_persistent
    policy = find_auto_creation(gateway.broker, name, allowed=gateway.settings.auto_create_topics)
    if name.partition is not None and name.partition >= policy.partitions:
        raise UnknownTopic("there is no such topic, nor would one of this name have this partition")
    if policy.partitions:
        try:
            await gateway.write_metadata(topics.plan_create(name.topic, policy.partitions, {}))
        except TopicExists:
            return  # another request created it first


async def count_partitions(gateway: PulsarServices, name: PulsarName, *, may_create: bool) -> int:
    """Return the number of numbered partitions of a topic, 0 if it has none.

    Raises UnknownTopic where the topic does not exist and `may_create` is False or not allowed.
    """
    topics = gateway.broker.non_persistent
    if gateway.catch_up is not None and not topics.exists(name):
        await gateway.catch_up()
    if not topics.exists(name):
        if topics.owner(name.topic) != gateway.broker.cluster.node_id and not may_create:
            raise PartitionRequired("only the owner of the topic knows whether it exists")
        if not may_create:
            raise UnknownTopic(f"Topic {name} not found")
        await create_automatically(gateway, name)
    return 0 if name.partition is not None else topics.partition_count(name.topic)


def close_clients(topic: NonPersistentTopic) -> None:
    """Disconnect the producers and consumers of a topic; clients look it up again."""
    for writer in topic.writers:
        producer = cast("Producer", writer)
        producer.leave()
        connection = producer.connection
        connection.guarded(partial(connection.close_producer, producer.producer_id))
    for subscription in list(topic.subscriptions.values()):
        cast("NonPersistentDispatcher", subscription).close_all()
