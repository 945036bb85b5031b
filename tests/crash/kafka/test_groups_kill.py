"""Classic and KIP-848 groups of several libraries while their broker is killed.

No acked message is lost, each group reads each message at least once, committed offsets never move
backwards, and each group is stable again after each restart; the time to that is reported.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import partial

import pytest

from tests.brokers import Trilogue
from tests.conformance.clients.base import Deadline
from tests.conformance.clients.kafka_programs import JAVA_4
from tests.conformance.kafka.groups.test_consumer_groups import NEW, NewConfluent
from tests.conformance.members import AioMember, ConfluentMember
from tests.crash.faults import CutDisk, kill
from tests.crash.kafka.group_load import GroupMember, Make, PacedLoad, Watch, missing, settle
from tests.crash.ledger import Ledger
from tests.crash.load import QUICK_RECONNECT, create_topic, full_read, running

TOPIC, PARTITIONS = "t", 4
ACKS_WITHIN = 60.0
SETTINGS = {
    "journal.file-size": "1MiB",
    "journal.file-age": "1s",
    "groups.initial-delay": "200ms",
    "groups.consumer-heartbeat": "500ms",
    "groups.consumer-session-timeout": "6s",
}
OF_JAVA = {
    "default.api.timeout.ms": 3_000, "request.timeout.ms": 2_500, "reconnect.backoff.max.ms": 100,
    "session.timeout.ms": 6_000, "heartbeat.interval.ms": 500,
}  # fmt: skip
RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"
ROUNDS, LONG_ROUNDS = 1, 10

Report = Callable[[object], None]
End = Callable[[Trilogue], None]


def join_java(address: str, group: str, more: dict[str, object]) -> object:
    settings = {**OF_JAVA, **more}
    if more is NEW:  # the broker's response sets these
        del settings["session.timeout.ms"], settings["heartbeat.interval.ms"]
    return JAVA_4.join(address, group, [TOPIC], settings)


def classic(address: str, group: str, *, with_java: bool) -> list[Make]:
    """librdkafka twice, aiokafka, and Java's."""
    java = [partial(join_java, address, group, {"partition.assignment.strategy": RANGE})]
    return [
        *[partial(ConfluentMember, address, group, TOPIC)] * 2,
        partial(AioMember, address, group, TOPIC),
        *(java if with_java else []),
    ]


def shared_out(address: str, group: str, *, with_java: bool) -> list[Make]:
    """Members of KIP-848: librdkafka twice and Java's; aiokafka has none."""
    java = [partial(join_java, address, group, NEW)]
    return [
        *[partial(NewConfluent, address, group, TOPIC, **QUICK_RECONNECT)] * 2,
        *(java if with_java else []),
    ]


def run(
    server: Trilogue,
    end: End,
    chance: random.Random,
    report: Report,
    *,
    rounds: int,
    with_java: bool,
) -> None:
    """Both groups read at once; end the server `rounds` times, and judge."""
    server.start()
    address = server.address
    ledger = Ledger(chance.randbytes(8))
    create_topic(address, TOPIC, PARTITIONS)
    load = PacedLoad(address, TOPIC, PARTITIONS, ledger, number=1, seed=chance.randrange(10**6))
    kinds = {"classic": classic, "shared-out": shared_out}
    seen: dict[str, set[tuple[int, int]]] = {group: set() for group in kinds}
    members = {
        group: [
            GroupMember(make, seen[group]) for make in made(address, group, with_java=with_java)
        ]
        for group, made in kinds.items()
    }
    watches = [Watch(address, group, TOPIC, PARTITIONS) for group in kinds]
    readers: list[threading.Thread] = [each for group in members.values() for each in group]
    settled: list[float] = []
    with running([load, *watches, *readers]):
        settle_all(address, members)
        for _ in range(rounds):
            ledger.wait_for_acks(200 + chance.randrange(300), ACKS_WITHIN)
            end(server)
            server.start()
            settled.append(settle_all(address, members))
        ledger.wait_for_acks(200, ACKS_WITHIN)
        load.stop()
        for group, found in seen.items():
            deadline = Deadline(f"all messages at {group}", ACKS_WITHIN)
            while missing(ledger, found):
                deadline.check(len(missing(ledger, found)))
                load.stopping.wait(0)
                threading.Event().wait(0.05)

    verdict = ledger.verdict(full_read(address, TOPIC, PARTITIONS))
    commits = [each.commits for each in readers]
    report(
        f"{rounds} ends: {verdict}; commits {commits}; looks {[each.looks for each in watches]};"
        f" settled after {max(settled):.2f} s at most"
    )
    assert verdict.bad == {}, verdict.examples
    assert [each.went_back for each in watches] == [[], []]
    assert min(each.looks for each in watches) > rounds
    assert [each.broken for each in readers] == [None] * len(readers)
    assert min(commits) > 0


def settle_all(address: str, members: dict[str, list[GroupMember]]) -> float:
    return max(settle(address, group, of, PARTITIONS) for group, of in members.items())


@pytest.mark.timeout(300)
def test_groups_of_both_kinds_come_through_kills(
    trilogue: Trilogue, chance: random.Random, report: Report
):
    trilogue.settings.update(SETTINGS)
    run(trilogue, kill, chance, report, rounds=ROUNDS, with_java=False)


@pytest.mark.long
@pytest.mark.java
@pytest.mark.timeout(600)
def test_groups_with_members_of_three_libraries_come_through_kills(
    trilogue: Trilogue, chance: random.Random, report: Report
):
    JAVA_4.require()
    trilogue.settings.update(SETTINGS)
    run(trilogue, kill, chance, report, rounds=LONG_ROUNDS, with_java=True)
    JAVA_4.stop()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_groups_of_both_kinds_come_through_power_cuts(
    disk: CutDisk, chance: random.Random, report: Report
):
    server = Trilogue(disk.root / "data", SETTINGS)
    try:
        run(server, disk.cut_off, chance, report, rounds=5, with_java=False)
    finally:
        server.kill9()
