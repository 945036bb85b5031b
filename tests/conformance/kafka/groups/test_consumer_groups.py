"""Consumer groups of KIP-848, whose members the broker assigns: every library that has them.

A real server that has them by default is a 4.3.1 (TRILOGUE_TEST_REAL=4.3.1); in 3.9.1 they are a
preview behind a feature that its tools cannot switch on, so there the tests are skipped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from tools.servers.kafka import RealKafka

from tests import brokers
from tests.brokers import Broker
from tests.cli.kafka_cli import Shell
from tests.conformance.asking import Asker, coordinator_of
from tests.conformance.clients import DEADLINE
from tests.conformance.clients.administrators import CONFLUENT
from tests.conformance.clients.base import Deadline, Read
from tests.conformance.clients.confluent import Confluent
from tests.conformance.clients.driven import Driven, DrivenMember
from tests.conformance.clients.kafka_programs import FRANZ_GO, JAVA_3, JAVA_4
from tests.conformance.clients.kafka_tools import TOOLS_4
from tests.conformance.members import (
    COOPERATIVE,
    PARTITIONS,
    ConfluentMember,
    Make,
    Member,
    PythonMember,
    kinds,
    pump,
    shares,
    values_of,
    write,
)
from trilogue.client.kafka.options import GroupProtocol
from trilogue.client.kafka.sync import KafkaClient
from trilogue.wire.kafka.groups.consumer import ConsumerGroupHeartbeatRequest

NEW = {"group.protocol": "consumer"}
OURS = {"groups.consumer-heartbeat": "200ms", "groups.consumer-session-timeout": "3s"}
REAL = {
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.session.timeout.ms": 3000,
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.regex.refresh.interval.ms": 10_000,
}
GROUPS_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.fixture(scope="module", params=brokers.names())
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """Members send heartbeats often, so that changes arrive quickly."""
    root = tmp_path_factory.mktemp(request.param)
    made = brokers.make(request.param, root, OURS)
    if isinstance(made, RealKafka):
        if made.version.startswith("3."):
            pytest.skip("KIP-848 is a preview there")
        made = RealKafka(root, version=made.version, heap="512m", settings=REAL)
    made.start()
    yield made
    made.kill9()


class NewConfluent(ConfluentMember):
    """librdkafka; it has no option for the assignor."""

    def __init__(self, address: str, group: str, topic: str, **more: object) -> None:
        self.reads = []
        self.rebalances = 0
        self.errors = []
        self.consumer = Confluent.consumer(address, group, {**NEW, **more})
        self.consumer.subscribe(
            [topic], on_assign=self.rebalanced, on_revoke=self.rebalanced, on_lost=self.rebalanced
        )


class RawMember:
    """A member by hand: it beats when it is polled, and else is silent."""

    def __init__(self, address: str, group: str, topic: str) -> None:
        self.reads: list[Read] = []
        self.asker = Asker(coordinator_of(address, group))
        self.group = group
        self.epoch = 0
        self.has: set[int] = set()
        self.beat(subscribed_topic_names=[topic], rebalance_timeout_ms=5_000, topic_partitions=[])

    def beat(self, **fields: object) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id="by-hand", member_epoch=self.epoch, **fields
        )
        answer = self.asker.request(request, 1)
        assert answer.error_code == 0, answer.error_message
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            parts = [each.partitions for each in answer.assignment.topic_partitions]
            self.has = set().union(*parts)

    def poll(self) -> None:
        self.beat()

    def partitions(self) -> set[int]:
        return self.has

    def commit(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.asker.close()


def driven(client: Driven, **more: object) -> Make:
    settings = {**NEW, **more}
    return lambda address, group, topic: client.join(address, group, [topic], settings)


def confluent(**more: object) -> Make:
    return lambda address, group, topic: NewConfluent(address, group, topic, **more)


EVERY = kinds(
    ("java-3.9.1", driven(JAVA_3)),
    ("java-4.3.1", driven(JAVA_4)),
    ("confluent", confluent()),
    ("franz-go", driven(FRANZ_GO)),
)


def described(address: str, group: str):
    admin = AdminClient({"bootstrap.servers": address})
    return admin.describe_consumer_groups([group])[group].result(DEADLINE)


@pytest.mark.parametrize("make", EVERY)
def test_members_share_and_the_last_one_goes_on_where_all_committed(
    address: str, wide_topic: str, join: Callable[..., Member], make: Make
):
    first = join(make, wide_topic, wide_topic)
    pump([first], lambda: shares([first]) == [4], "one has all")
    second = join(make, wide_topic, wide_topic)
    both = [first, second]
    pump(both, lambda: shares(both) == [2, 2], "each has half")
    assert first.partitions().isdisjoint(second.partitions())
    sent = write(address, wide_topic, "first")
    pump(both, lambda: values_of(both) == sent, "all records are read")
    for member in both:
        member.commit()
    mine = len(first.reads)

    second.close()
    pump([first], lambda: shares([first]) == [4], "one has all again")
    later = write(address, wide_topic, "later")
    pump([first], lambda: later <= values_of([first]), "all later records are read by one")

    assert len(first.reads) == mine + len(later)
    found = described(address, wide_topic)
    assert (found.type.name, found.state.name, len(found.members)) == ("CONSUMER", "STABLE", 1)


class OwnMember:
    """Our own client."""

    def __init__(self, address: str, group: str, topic: str) -> None:
        self.reads: list[Read] = []
        self.client = KafkaClient(address)
        self.consumer = self.client.consumer(topic, group=group, protocol=GroupProtocol.CONSUMER)

    def poll(self) -> None:
        self.consumer.poll(0.05)

    def partitions(self) -> set[int]:
        return {each.number for each in self.consumer.assignment}

    def commit(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.client.close()


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Ours, whose members usually beat once in ten minutes."""
    if os.environ.get("TRILOGUE_TEST_BOOTSTRAP"):
        pytest.skip("needs a server of its own")
    settings = {"groups.consumer-heartbeat": "600s", "groups.consumer-session-timeout": "1200s"}
    made = brokers.make("trilogue", tmp_path_factory.mktemp("patient"), settings)
    made.start()
    yield made
    made.kill9()


@pytest.mark.parametrize("make", [*EVERY, *kinds(("own", OwnMember))])
def test_members_come_sooner_while_their_group_changes(
    patient: Broker, topic: str, request: pytest.FixtureRequest, make: Make
):
    """KIP-848: each response sets the interval. A real 4.3.1 always sends the same one."""
    CONFLUENT.create(patient.address, topic, PARTITIONS)
    members = [make(patient.address, topic, topic) for _ in range(2)]
    for member in members:
        request.addfinalizer(member.close)

    pump(members, lambda: shares(members) == [2, 2], "each has half")


@pytest.mark.java
def test_our_command_line_shows_a_group_as_kafkas_own_tool_does(
    address: str, wide_topic: str, join: Callable[..., Member]
):
    """kafka-consumer-groups of 4.3.1 beside `trilogue groups`."""
    both = [join(make, wide_topic, wide_topic) for make in (confluent(), driven(JAVA_4))]
    pump(both, lambda: shares(both) == [2, 2], "each has half")
    sent = write(address, wide_topic, "shown")
    pump(both, lambda: values_of(both) == sent, "all records are read")
    for member in both:
        member.commit()
    words = ["--bootstrap-server", address, "--describe", "--group", wide_topic]

    shell = Shell(address)
    [listed] = shell.json("groups", "list", wide_topic, "--type", "consumer")
    [response] = shell.json("groups", "describe", wide_topic)
    printed = shell.run("groups", "describe", wide_topic).stdout
    members = table(TOOLS_4.run(GROUPS_TOOL, *words, "--members", "--verbose").text)
    places = table(TOOLS_4.run(GROUPS_TOOL, *words, "--verbose").text)
    [state] = table(TOOLS_4.run(GROUPS_TOOL, *words, "--state", "--verbose").text)

    assert (listed["state"], listed["type"]) == ("Stable", "consumer")
    assert (response["state"], response["type"], response["assignor"]) == (
        "Stable",
        "consumer",
        "uniform",
    )
    assert (state["STATE"], state["ASSIGNMENT-STRATEGY"]) == ("Stable", "uniform")
    assert (state["GROUP-EPOCH"], state["TARGET-ASSIGNMENT-EPOCH"]) == (
        str(response["epoch"]),
        str(response["assignment_epoch"]),
    )
    assert {row["CONSUMER-ID"]: row for row in members} == {
        each["member"]: {
            "GROUP": wide_topic,
            "CONSUMER-ID": each["member"],
            "HOST": each["host"],
            "CLIENT-ID": each["client"],
            "#PARTITIONS": "2",
            "CURRENT-EPOCH": str(each["epoch"]),
            "CURRENT-ASSIGNMENT": f"{wide_topic}:{joined(each['assignment'])}",
            "TARGET-EPOCH": str(response["assignment_epoch"]),
            "TARGET-ASSIGNMENT": f"{wide_topic}:{joined(each['target'])}",
        }
        for each in response["members"]
    }
    heads = ("PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "CLIENT-ID")
    keys = ("partition", "position", "end", "lag", "member", "client")
    assert {tuple(row[each] for each in heads) for row in places} == {
        tuple(str(row[each]) for each in keys) for row in response["partitions"]
    }
    assert f"group {wide_topic}: Stable, consumer, 2 members, 0 behind" in printed
    assert all(each["member"] in printed for each in response["members"])


def table(text: str) -> list[dict[str, str]]:
    """The rows of what a tool of Kafka has printed, by the heads of their columns."""
    heads, *rows = [line.split() for line in text.splitlines() if line.strip()]
    return [dict(zip(heads, row, strict=True)) for row in rows]


def joined(places: Sequence[Sequence[object]]) -> str:
    return ",".join(str(number) for _, number in sorted(places))


@pytest.mark.java
def test_members_of_four_libraries_share_a_group(
    address: str, wide_topic: str, join: Callable[..., Member]
):
    makes = [driven(JAVA_3), driven(JAVA_4), confluent(), driven(FRANZ_GO)]
    members = [join(make, wide_topic, wide_topic) for make in makes]
    pump(members, lambda: shares(members) == [1, 1, 1, 1], "each has one")

    sent = write(address, wide_topic, "mixed")

    pump(members, lambda: values_of(members) == sent, "all records are read")
    assert set.union(*(member.partitions() for member in members)) == set(range(PARTITIONS))


@pytest.mark.parametrize(
    "make",
    kinds(
        ("java-4.3.1", driven(JAVA_4, **{"group.remote.assignor": "range"})),
        ("confluent", confluent(**{"group.remote.assignor": "range"})),
    ),
)
def test_the_range_assignor_gives_neighbours(
    address: str, wide_topic: str, join: Callable[..., Member], make: Make
):
    both = [join(make, wide_topic, wide_topic) for _ in range(2)]

    pump(both, lambda: shares(both) == [2, 2], "each has half")

    assert {frozenset(member.partitions()) for member in both} == {
        frozenset({0, 1}),
        frozenset({2, 3}),
    }


def java_pattern(address: str, group: str, pattern: str) -> Member:
    return DrivenMember(JAVA_4, address, group, [], dict(NEW), re2=pattern)


PATTERNS = kinds(
    ("java-4.3.1", java_pattern),
    ("confluent", lambda address, group, name: NewConfluent(address, group, f"^{name}")),
)


@pytest.mark.parametrize("make", PATTERNS)
def test_topics_that_a_pattern_matches_are_read_also_when_they_come_later(
    address: str, topic: str, join: Callable[..., Member], make: Make
):
    CONFLUENT.create(address, f"{topic}-1", 1)
    member = join(make, topic, f"{topic}-.*")
    sent = write(address, f"{topic}-1", "early", partitions=1)
    pump([member], lambda: values_of([member]) == sent, "the first topic is read")

    # Here with the next heartbeat; a real one looks at its topics at most every 10 s.
    CONFLUENT.create(address, f"{topic}-2", 1)
    sent |= write(address, f"{topic}-2", "late", partitions=1)

    pump([member], lambda: values_of([member]) == sent, "the second one, too")


@pytest.mark.parametrize(
    "make",
    kinds(
        ("java-4.3.1", driven(JAVA_4, **{"group.instance.id": "the-one"})),
        ("confluent", confluent(**{"group.instance.id": "the-one"})),
    ),
)
def test_a_static_member_comes_back_to_its_share(
    address: str, wide_topic: str, join: Callable[..., Member], make: Make
):
    static = join(make, wide_topic, wide_topic)
    other = join(confluent(), wide_topic, wide_topic)
    both = [static, other]
    pump(both, lambda: shares(both) == [2, 2], "each has half")
    share, rebalances = other.partitions(), other.rebalances

    static.close()
    back = join(make, wide_topic, wide_topic)
    pump([back, other], lambda: shares([back, other]) == [2, 2], "each has half again")

    assert (other.partitions(), other.rebalances) == (share, rebalances)


@pytest.mark.parametrize("make", EVERY)
def test_partitions_of_a_silent_member_are_read_by_the_others(
    address: str, wide_topic: str, join: Callable[..., Member], make: Make
):
    """The member stops without a request to leave the group."""
    member = join(make, wide_topic, wide_topic)
    pump([member], lambda: shares([member]) == [4], "one has all")
    silent = RawMember(address, wide_topic, wide_topic)
    pump([member, silent], lambda: shares([member, silent]) == [2, 2], "half is given up")

    pump([member], lambda: shares([member]) == [4], "its session is over")
    silent.close()


# -- services that move from one way to the other, one process at a time


CLASSIC = kinds(
    (
        "java-4.3.1",
        lambda address, group, topic: JAVA_4.join(
            address, group, [topic], {"partition.assignment.strategy": COOPERATIVE}
        ),
    ),
    (
        "confluent-cooperative",
        lambda *where: ConfluentMember(*where, strategy="cooperative-sticky"),
    ),
    ("confluent-eager", lambda *where: ConfluentMember(*where, strategy="range")),
    ("kafka-python", lambda *where: PythonMember(*where, strategy="range")),
)


@pytest.mark.parametrize("classic", CLASSIC)
def test_a_group_changes_its_kind_and_back_while_its_members_read_on(
    address: str, wide_topic: str, join: Callable[..., Member], classic: Make
):
    """KIP-848, "Upgrade & Downgrade": one process after the other."""
    old = [join(classic, wide_topic, wide_topic) for _ in range(2)]
    pump(old, lambda: shares(old) == [2, 2], "classic members share")
    sent = write(address, wide_topic, "classic")
    pump(old, lambda: values_of(old) == sent, "all records are read")

    new = join(confluent(), wide_topic, wide_topic)
    pump([*old, new], lambda: shares([*old, new]) == [1, 1, 2], "three share")
    assert described(address, wide_topic).type.name == "CONSUMER"
    mixed = write(address, wide_topic, "mixed")
    everyone = [*old, new]
    pump(everyone, lambda: mixed <= values_of(everyone), "all records are read, mixed")

    old[0].close()
    pump([old[1], new], lambda: shares([old[1], new]) == [2, 2], "two share")
    new.close()
    pump([old[1]], lambda: shares([old[1]]) == [4], "one classic member has all")
    assert described(address, wide_topic).type.name == "CLASSIC"
    last = write(address, wide_topic, "last")
    pump([old[1]], lambda: last <= values_of([old[1]]), "all records are read, at last")


@pytest.mark.parametrize("make", EVERY)
def test_members_go_on_after_the_broker_was_killed(
    tmp_path: Path, topic: str, make: Make, request: pytest.FixtureRequest
):
    """Groups are memory here, positions are not: members join again by themselves."""
    if os.environ.get("TRILOGUE_TEST_BOOTSTRAP"):
        pytest.skip("needs a server of its own")
    own = brokers.make("trilogue", tmp_path, OURS)
    own.start()
    request.addfinalizer(own.kill9)
    CONFLUENT.create(own.address, topic, PARTITIONS)
    member = make(own.address, topic, topic)
    try:
        first = write(own.address, topic, "first")
        pump([member], lambda: values_of([member]) == first, "all records are read")
        member.commit()

        own.kill9()
        own.start()
        later = write(own.address, topic, "later")
        pump([member], lambda: later <= values_of([member]), "it reads on")
        # It may have read on before it got UNKNOWN_MEMBER_ID; then it reads that once more.
        watch = Confluent.consumer(own.address, topic)
        places = [TopicPartition(topic, each) for each in range(PARTITIONS)]
        deadline = Deadline("all that it read is committed", DEADLINE)
        while [each.offset for each in watch.committed(places, timeout=DEADLINE)] != [
            6
        ] * PARTITIONS:
            deadline.check()
            member.poll()
            with suppress(Exception):  # each library has its own
                member.commit()
    finally:
        member.close()
