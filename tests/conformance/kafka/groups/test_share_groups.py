"""Share groups (KIP-932) with Kafka's own Java consumers and tools, through crashes of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from tests.brokers import Broker
from tests.conformance.clients import DEADLINE, IN_PROCESS, Record
from tests.conformance.clients.kafka_programs import FRANZ_GO
from tests.conformance.clients.kafka_shares import SharedRecord, Shares
from tests.conformance.clients.kafka_tools import TOOLS_4
from tests.conformance.conftest import unique
from tests.waiting import wait_until

EARLIEST = {"share.auto.offset.reset": "earliest"}
SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def shares() -> Iterator[Shares]:
    made = Shares()
    yield made
    made.stop()


def write(address: str, topic: str, count: int, first: int = 0) -> list[str]:
    values = [f"v{number}" for number in range(first, first + count)]
    records = [Record(b"k%d" % number, value.encode()) for number, value in enumerate(values)]
    IN_PROCESS[0].write(address, topic, records)
    return values


def test_members_divide_the_records_of_a_topic(address: str, wide_topic: str, shares: Shares):
    group = unique("shared")
    shares.configure(address, group, EARLIEST)
    values = write(address, wide_topic, 200)
    limits = {"max.poll.records": 20}
    members = [shares.open(address, group, wide_topic, limits) for _ in range(2)]
    read: list[list[SharedRecord]] = [[], []]

    def is_all_read() -> bool:
        for member, found in zip(members, read, strict=True):
            some = member.poll()
            member.acknowledge("accept", some)
            found.extend(some)
            assert not any(member.commit().values())
        return len(read[0]) + len(read[1]) >= 200

    wait_until(is_all_read, DEADLINE)
    for member in members:
        member.close()

    assert Counter(each.value for each in read[0] + read[1]) == Counter(values)
    assert {each.deliveries for each in read[0] + read[1]} == {1}
    assert read[0]
    assert read[1]
    assert sum(lag for _, lag in shares.offsets(address, group).values()) == 0


def test_records_are_released_rejected_and_renewed(address: str, topic: str, shares: Shares):
    group = unique("ways")
    shares.configure(address, group, EARLIEST)
    write(address, topic, 9)
    member = shares.open(address, group, topic)
    records = member.poll_until(9)
    for start, kind in ((0, "accept"), (3, "release"), (6, "reject")):
        member.acknowledge(kind, records[start : start + 3])
    assert member.commit() == {"0": ""}

    again = member.poll_until(3)
    assert [(each.offset, each.deliveries) for each in again] == [(3, 2), (4, 2), (5, 2)]
    member.acknowledge("renew", again)
    assert member.commit() == {"0": ""}
    renewed = member.poll_until(3)
    assert [(each.offset, each.deliveries) for each in renewed] == [(3, 2), (4, 2), (5, 2)]
    member.acknowledge("accept", renewed)
    assert member.commit() == {"0": ""}
    member.close()

    assert shares.offsets(address, group) == {"0": [9, 0]}


def test_a_group_of_committed_records_reads_no_others(address: str, topic: str, shares: Shares):
    group = unique("committed")
    shares.configure(address, group, {**EARLIEST, "share.isolation.level": "read_committed"})
    producer = Producer({"bootstrap.servers": address, "transactional.id": unique("t")})
    producer.init_transactions(DEADLINE)
    for number in range(6):
        producer.begin_transaction()
        for each in "ab":
            producer.produce(topic, f"{number}{each}".encode())
        if number % 2:
            producer.abort_transaction(DEADLINE)
        else:
            producer.commit_transaction(DEADLINE)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(DEADLINE)
    member = shares.open(address, group, topic)

    records = member.poll_until(6)
    member.acknowledge("accept", records)
    assert member.commit() == {"0": ""}
    assert member.poll() == []
    producer.commit_transaction(DEADLINE)
    (last,) = member.poll_until(1)
    member.acknowledge("accept", [last])
    member.close()

    assert [each.value for each in records] == ["0a", "0b", "2a", "2b", "4a", "4b"]
    assert last.value == "open"


def test_franz_go_releases_and_accepts_records(address: str, topic: str, shares: Shares):
    group = unique("franz")
    shares.configure(address, group, EARLIEST)
    write(address, topic, 5)

    deliveries = FRANZ_GO.request("share", address, group=group, topic=topic, count=5)

    assert sorted(deliveries) == [[offset, count] for offset in range(5) for count in (1, 2)]
    assert shares.offsets(address, group) == {"0": [5, 0]}


def test_records_of_a_consumer_that_dies_are_delivered_to_another(
    address: str, topic: str, shares: Shares
):
    group = unique("dies")
    shares.configure(address, group, EARLIEST)
    values = write(address, topic, 10)
    dying = Shares()
    first = dying.open(address, group, topic)
    records = first.poll_until(10)
    first.acknowledge("accept", records[:4])
    first.commit()

    dying.kill9()
    second = shares.open(address, group, topic)
    rest = second.poll_until(6)
    second.acknowledge("accept", rest)
    second.close()

    assert [each.value for each in rest] == values[4:]
    assert {each.deliveries for each in rest} == {1}  # the last delivery was not acknowledged


def test_state_survives_a_kill_of_the_server(own_broker: Broker, shares: Shares):
    """Accepted records stay away; all others come again, with the counts of what was given back."""
    address, topic, group = own_broker.address, "topic", "survivors"
    IN_PROCESS[0].write(address, topic, [])
    shares.configure(address, group, EARLIEST)
    ledger: dict[str, int] = dict.fromkeys(write(address, topic, 60), 0)
    accepted: set[str] = set()
    released: set[str] = set()
    delivered: Counter[str] = Counter()
    for round_ in range(2):
        member = shares.open(address, group, topic, {"max.poll.records": 20})
        records = member.poll_until(1)
        for each in records:
            delivered[each.value] += 1
            assert each.value not in accepted
            assert 1 <= each.deliveries <= delivered[each.value]
            assert each.value not in released or each.deliveries > 1
        take, give = records[: len(records) // 2], records[len(records) // 2 :: 2]
        member.acknowledge("accept", take)
        member.acknowledge("release", give)
        assert member.commit() == {"0": ""}
        accepted |= {each.value for each in take}
        released |= {each.value for each in give}
        own_broker.kill9()
        own_broker.start()
        member.close()  # with records that it never acknowledged
        ledger.update(dict.fromkeys(write(address, topic, 10, first=60 + round_ * 10), 0))
    assert accepted
    assert released
    member = shares.open(address, group, topic)

    def is_all_accepted() -> bool:
        records = member.poll()
        for each in records:
            delivered[each.value] += 1
            assert each.value not in accepted
        member.acknowledge("accept", records)
        if not any(member.commit().values()):
            accepted.update(each.value for each in records)
        return len(accepted) >= len(ledger)

    wait_until(is_all_accepted, 2 * DEADLINE)
    member.close()

    assert accepted == set(ledger)
    assert shares.offsets(address, group)["0"][1] == 0


def test_tools_list_describe_reset_and_delete_share_groups(
    address: str, topic: str, shares: Shares
):
    group = unique("tools")
    shares.configure(address, group, EARLIEST)
    write(address, topic, 5)

    def tool(main: str, *words: str) -> str:
        got = TOOLS_4.run(main, "--bootstrap-server", address, *words)
        assert got.status == 0, got.text
        return got.text

    limits = ("--max-messages", "5", "--timeout-ms", str(int(DEADLINE * 1_000)))
    printed = tool(CONSOLE, "--topic", topic, "--group", group, *limits)
    assert [line for line in printed.split() if line.startswith("v")] == [f"v{n}" for n in range(5)]
    assert group in tool(SHARE_GROUPS, "--list")
    assert tool(SHARE_GROUPS, "--describe", "--group", group).split()[-5:] == [
        *(group, topic, "0", "5", "0")
    ]
    assert "Empty" in tool(SHARE_GROUPS, "--describe", "--group", group, "--state")
    words = ("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
    tool(SHARE_GROUPS, *words)
    assert shares.offsets(address, group) == {"0": [0, 5]}
    tool(SHARE_GROUPS, "--delete-offsets", "--group", group, "--topic", topic)
    assert shares.offsets(address, group) == {}
    tool(SHARE_GROUPS, "--delete", "--group", group)
    assert group not in tool(SHARE_GROUPS, "--list")
