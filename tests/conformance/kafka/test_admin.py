"""Topics made and removed by the admin side of foreign clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioPartitions
from aiokafka.admin import NewTopic as AioTopic
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.conformance.clients import DEADLINE, JAVA, Record
from tests.conformance.clients.confluent import Confluent
from tests.conformance.clients.java import Java
from tests.conformance.clients.kcat import Kcat


class ByConfluent:
    def create(self, address: str, topic: str, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": address})
        (made,) = admin.create_topics([NewTopic(topic, partitions, 1)]).values()
        made.result(DEADLINE)

    def delete(self, address: str, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": address})
        (gone,) = admin.delete_topics([topic]).values()
        gone.result(DEADLINE)

    def grow(
        self,
        address: str,
        topic: str,
        partitions: int,
        assignment: list[list[int]] | None = None,
        **how: bool,
    ) -> None:
        admin = AdminClient({"bootstrap.servers": address})
        more = {} if assignment is None else {"replica_assignment": assignment}
        (grown,) = admin.create_partitions(
            [NewPartitions(topic, partitions, **more)], **how
        ).values()
        grown.result(DEADLINE)


class ByAiokafka:
    def create(self, address: str, topic: str, partitions: int) -> None:
        asyncio.run(self.request(address, "create_topics", [AioTopic(topic, partitions, 1)]))

    def delete(self, address: str, topic: str) -> None:
        asyncio.run(self.request(address, "delete_topics", [topic]))

    def grow(self, address: str, topic: str, partitions: int) -> None:
        new = {topic: AioPartitions(partitions)}
        asyncio.run(self.request(address, "create_partitions", new))

    @staticmethod
    async def request(address: str, method: str, argument: object) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=address)
        await admin.start()
        try:
            await getattr(admin, method)(argument)
        finally:
            await admin.close()


class ByKafkaPython:
    def create(self, address: str, topic: str, partitions: int) -> None:
        from kafka.admin import NewTopic as PythonTopic

        self.request(address, "create_topics", [PythonTopic(topic, partitions, 1)])

    def delete(self, address: str, topic: str) -> None:
        self.request(address, "delete_topics", [topic])

    def grow(self, address: str, topic: str, partitions: int) -> None:
        from kafka.admin import NewPartitions as PythonPartitions

        self.request(address, "create_partitions", {topic: PythonPartitions(partitions)})

    @staticmethod
    def request(address: str, method: str, argument: object) -> None:
        from kafka.admin import KafkaAdminClient

        admin = KafkaAdminClient(bootstrap_servers=address)
        try:
            getattr(admin, method)(argument)
        finally:
            admin.close()


class ByJava:
    def __init__(self, java: Java) -> None:
        self.java = java

    def create(self, address: str, topic: str, partitions: int) -> None:
        self.run(address, "--create", f"--topic={topic}", f"--partitions={partitions}")

    def delete(self, address: str, topic: str) -> None:
        self.run(address, "--delete", f"--topic={topic}")

    def grow(self, address: str, topic: str, partitions: int) -> None:
        self.run(address, "--alter", f"--topic={topic}", f"--partitions={partitions}")

    def run(self, address: str, *arguments: str) -> str:
        main = "org.apache.kafka.tools.TopicCommand"
        return self.java.run(main, f"--bootstrap-server={address}", *arguments)


ADMINS = [
    pytest.param(ByConfluent(), id="confluent"),
    pytest.param(ByAiokafka(), id="aiokafka"),
    pytest.param(ByKafkaPython(), id="kafka-python"),
    pytest.param(ByJava(JAVA[0]), id=JAVA[0].name, marks=pytest.mark.java),
    pytest.param(ByJava(JAVA[1]), id=JAVA[1].name, marks=pytest.mark.java),
]


def partitions_seen_by_kcat(address: str, topic: str) -> int | None:
    """None when the topic is not in the list of all topics."""
    listed = Kcat().run("-L", "-b", address)
    found = [line for line in listed.split("\n") if f'topic "{topic}"' in line]
    return int(found[0].split("with ")[1].split()[0]) if found else None


@pytest.mark.parametrize("admin", ADMINS)
def test_a_topic_is_made_and_removed(address: str, topic: str, admin: ByConfluent):
    assert partitions_seen_by_kcat(address, topic) is None

    admin.create(address, topic, 3)
    made = partitions_seen_by_kcat(address, topic)
    admin.delete(address, topic)
    removed = partitions_seen_by_kcat(address, topic)

    assert (made, removed) == (3, None)


@pytest.mark.parametrize("admin", ADMINS)
def test_a_topic_gets_more_partitions(address: str, topic: str, admin: ByConfluent):
    """What was written stays where it was, and a group reads the new ones too."""
    client = Confluent()
    ByConfluent().create(address, topic, 2)
    client.write(address, topic, [Record(b"k", b"old")] * 4)

    admin.grow(address, topic, 5)
    client.write(address, topic, [Record(b"%d" % each, b"new") for each in range(100)])

    assert partitions_seen_by_kcat(address, topic) == 5
    read = client.read(address, topic, 104)
    assert {each.partition for each in read} == set(range(5))
    old = [each for each in read if each.value == b"old"]
    assert len({each.partition for each in old}) == 1
    assert sorted(each.offset for each in old) == [0, 1, 2, 3]


def test_a_topic_only_grows_and_only_onto_nodes_that_are_there(address: str, topic: str):
    admin = ByConfluent()
    admin.create(address, topic, 2)
    (node,) = AdminClient({"bootstrap.servers": address}).list_topics(timeout=DEADLINE).brokers

    for partitions in (1, 2):
        assert refusal(lambda count=partitions: admin.grow(address, topic, count)) == (
            "INVALID_PARTITIONS"
        )
    assert refusal(lambda: admin.grow(address, f"{topic}.not", 3)) == "UNKNOWN_TOPIC_OR_PART"
    for wrong in ([[node + 7]], [[node, node]]):
        assert refusal(lambda to=wrong: admin.grow(address, topic, 3, assignment=to)) == (
            "INVALID_REPLICA_ASSIGNMENT"
        )
    admin.grow(address, topic, 3, validate_only=True)
    assert partitions_seen_by_kcat(address, topic) == 2
    admin.grow(address, topic, 3, assignment=[[node]])
    assert partitions_seen_by_kcat(address, topic) == 3


@pytest.mark.java
def test_java_lists_topics(address: str, topic: str):
    ByConfluent().create(address, topic, 1)

    assert topic in ByJava(JAVA[1]).run(address, "--list").split()


def test_many_topics_are_made_at_once(address: str, topic: str):
    names = [f"{topic}.{number}" for number in range(50)]
    admin = AdminClient({"bootstrap.servers": address})

    for made in admin.create_topics([NewTopic(name, 2, 1) for name in names]).values():
        made.result(DEADLINE)

    listed = admin.list_topics(timeout=DEADLINE).topics
    assert dict.fromkeys(names, 2) == {name: len(listed[name].partitions) for name in names}


def refusal(action: Callable[[], object]) -> str:
    """The name of the error a broker answers with."""
    with pytest.raises(KafkaException) as caught:
        action()
    return caught.value.args[0].name()


def test_a_topic_that_is_there_is_not_made_again(address: str, topic: str):
    admin = ByConfluent()
    admin.create(address, topic, 2)

    assert refusal(lambda: admin.create(address, topic, 3)) == "TOPIC_ALREADY_EXISTS"
    assert partitions_seen_by_kcat(address, topic) == 2


@pytest.mark.parametrize("admin", [each for each in ADMINS if each.id != "aiokafka"])
def test_a_name_that_differs_in_dots_and_underscores_only_is_refused(
    address: str, topic: str, admin: ByConfluent
):
    """Until the other one is deleted; aiokafka raises for no refusal."""
    dotted, underscored = f"{topic}.a_b", f"{topic}_a.b"
    admin.create(address, dotted, 1)

    with pytest.raises(Exception, match=r"(?i)collides with existing topic|InvalidTopic|Error 17"):
        admin.create(address, underscored, 1)
    assert refusal(lambda: ByConfluent().create(address, underscored, 1)) == "TOPIC_EXCEPTION"
    assert refusal(lambda: ByConfluent().create(address, dotted, 1)) == "TOPIC_ALREADY_EXISTS"
    assert partitions_seen_by_kcat(address, underscored) is None
    ByConfluent().delete(address, dotted)
    admin.create(address, underscored, 2)
    assert partitions_seen_by_kcat(address, underscored) == 2


def test_a_topic_that_is_not_there_is_not_removed(address: str, topic: str):
    assert refusal(lambda: ByConfluent().delete(address, topic)) == "UNKNOWN_TOPIC_OR_PART"


@pytest.mark.parametrize("name", ["with space", "slash/es", "..", "x" * 250, "\u00fcml\u00e4ut"])
def test_names_kafka_forbids_are_refused(address: str, name: str):
    assert refusal(lambda: ByConfluent().create(address, name, 1)) == "TOPIC_EXCEPTION"


def test_counts_that_cannot_be_are_refused(address: str, topic: str):
    admin = AdminClient({"bootstrap.servers": address})

    def create(**options: int) -> object:
        (made,) = admin.create_topics([NewTopic(topic, **options)]).values()
        return made.result(DEADLINE)

    assert (
        refusal(lambda: create(num_partitions=1, replication_factor=7))
        == "INVALID_REPLICATION_FACTOR"
    )
    assert partitions_seen_by_kcat(address, topic) is None


def test_a_topic_made_again_starts_empty(address: str, topic: str):
    """Its old records are gone, and its offsets start at 0."""
    admin, client = ByConfluent(), Confluent()
    admin.create(address, topic, 1)
    client.write(address, topic, [Record(b"k", b"old")] * 5)

    admin.delete(address, topic)
    admin.create(address, topic, 1)
    client.write(address, topic, [Record(b"k", b"new")])

    (read,) = client.read(address, topic, 1)
    assert (read.offset, read.value) == (0, b"new")


def test_validation_alone_makes_nothing(address: str, topic: str):
    admin = AdminClient({"bootstrap.servers": address})

    (checked,) = admin.create_topics([NewTopic(topic, 1, 1)], validate_only=True).values()
    checked.result(DEADLINE)

    assert partitions_seen_by_kcat(address, topic) is None
