"""A classic group and one of KIP-848, each with members of several libraries, and their watches.

groups = MixedGroups(address, "t", partitions, ledger, with_java=True)
with running(groups.parts):
    groups.settle()
    ... ends of servers ...
    groups.wait_until_read(60.0)
groups.assert_good()
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial

from tests.conformance.clients.kafka_programs import JAVA_4
from tests.conformance.kafka.groups.test_consumer_groups import NEW, NewConfluent
from tests.conformance.members import AioMember, ConfluentMember
from tests.crash.kafka.group_load import GroupMember, Make, PacedLoad, Watch, missing, settle
from tests.crash.ledger import Ledger
from tests.crash.load import QUICK_RECONNECT, create_topic, full_read, running
from tests.crash.parts import Part
from tests.waiting import wait_until

OF_JAVA = {
    "default.api.timeout.ms": 3_000, "request.timeout.ms": 2_500, "reconnect.backoff.max.ms": 100,
    "session.timeout.ms": 6_000, "heartbeat.interval.ms": 500,
}  # fmt: skip
PARTITIONS, ACKS, WAIT_S = 4, 200, 180.0
RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"


AT_ONCE = 100


class ClassicReader(ConfluentMember):
    """Takes what is there and commits it at once.

    A commit for each message is slower than the load in a cluster, where each waits for PostgreSQL:
    members were 5,300 of 10,000 messages behind when it ended, and needed up to 42 s.
    """

    at_once = AT_ONCE


class NewReader(NewConfluent):
    """The same of KIP-848."""

    at_once = AT_ONCE


def join_java(address: str, group: str, topic: str, more: dict[str, object]) -> object:
    settings = {**OF_JAVA, **more}
    if more is NEW:  # the broker's response sets these
        del settings["session.timeout.ms"], settings["heartbeat.interval.ms"]
    return JAVA_4.join(address, group, [topic], settings)


def classic(address: str, group: str, topic: str, *, with_java: bool) -> list[Make]:
    """librdkafka twice, aiokafka, and Java's."""
    java = [partial(join_java, address, group, topic, {"partition.assignment.strategy": RANGE})]
    return [
        *[partial(ClassicReader, address, group, topic)] * 2,
        partial(AioMember, address, group, topic),
        *(java if with_java else []),
    ]


def shared_out(address: str, group: str, topic: str, *, with_java: bool) -> list[Make]:
    """Members of KIP-848: librdkafka twice and Java's; aiokafka has none."""
    java = [partial(join_java, address, group, topic, NEW)]
    return [
        *[partial(NewReader, address, group, topic, **QUICK_RECONNECT)] * 2,
        *(java if with_java else []),
    ]


class MixedGroups:
    """Both groups. What was acked is read at least once, and committed offsets only grow."""

    def __init__(
        self, address: str, topic: str, partitions: int, ledger: Ledger, *, with_java: bool
    ) -> None:
        made = {"classic": classic, "shared-out": shared_out}
        self.address, self.partitions, self.ledger = address, partitions, ledger
        self.seen: dict[str, set[tuple[int, int]]] = {group: set() for group in made}
        self.members = {
            group: [
                GroupMember(each, self.seen[group])
                for each in make(address, group, topic, with_java=with_java)
            ]
            for group, make in made.items()
        }
        self.watches = [Watch(address, group, topic, partitions) for group in made]
        self.readers = [each for group in self.members.values() for each in group]

    @property
    def parts(self) -> list[Part]:
        return [*self.watches, *self.readers]

    @property
    def commits(self) -> list[int]:
        return [each.commits for each in self.readers]

    @property
    def problems(self) -> list[str]:
        """What users of the libraries saw."""
        return sorted({each for reader in self.readers for each in reader.problems})

    def settle(self) -> float:
        """Wait until each group has shared the partitions; return the seconds of the slower one."""
        return max(
            settle(self.address, group, of, self.partitions) for group, of in self.members.items()
        )

    def wait_until_read(self, within_s: float) -> float:
        """Wait until both groups have read all that was acked; return the seconds it took."""
        began_s = time.monotonic()
        for watch in self.watches:
            found = self.seen[watch.group]
            wait_until(
                lambda found=found: not missing(self.ledger, found),
                lambda watch=watch: self.describe(watch),
                within_s,
            )
        return time.monotonic() - began_s

    def describe(self, watch: Watch) -> str:
        """Return what a group has not read, its committed offsets, and where its members are."""
        left = missing(self.ledger, self.seen[watch.group])
        by_partition = {
            each: sorted(at for number, at in left if number == each)
            for each in range(self.partitions)
        }
        ends = {each: (len(at), at[:2], at[-2:]) for each, at in by_partition.items()}
        places = [
            (sorted(each.has), each.reads, each.problems[-2:]) for each in self.members[watch.group]
        ]
        return f"{watch.group}: not read {ends}; committed {watch.last}; {places}"

    def assert_good(self) -> None:
        assert [each.went_back for each in self.watches] == [[], []]
        assert [each.broken for each in self.readers] == [None] * len(self.readers)


def check_members_go_on(
    address: str,
    chance: random.Random,
    report: Callable[[object], None],
    end_nodes: Callable[[Callable[[], None]], str],
) -> None:
    """Both groups, with Java's members, while nodes end one by one.

    `end_nodes` gets what waits after each until all groups go on, and returns what to report.
    """
    JAVA_4.require()
    JAVA_4.request("create", address, topic="first", partitions=1)  # its program takes a while
    ledger, topic = Ledger(chance.randbytes(8)), "t"
    create_topic(address, topic, PARTITIONS)
    load = PacedLoad(address, topic, PARTITIONS, ledger, number=1, seed=chance.randrange(10**6))
    groups = MixedGroups(address, topic, PARTITIONS, ledger, with_java=True)

    def advance() -> None:
        groups.settle()
        ledger.wait_for_acks(ACKS, WAIT_S)

    try:
        with running([load, *groups.parts]):
            advance()
            took = end_nodes(advance)
            load.stop()
            read_s = groups.wait_until_read(WAIT_S)
    finally:
        JAVA_4.stop()
    verdict = ledger.verdict(full_read(address, topic, PARTITIONS))
    report(f"{verdict}; {took}; all read after {read_s:.1f}; users saw: {groups.problems}")
    assert verdict.bad == {}, verdict.examples
    groups.assert_good()
