"""Members of groups from several libraries, for tests that kill their broker.

A group is mixed: each library has one member in it, on a thread of its own, which reads, records
what it read, and commits. A watch fetches the committed offsets all the time: none may move
backwards. The messages come from an idempotent producer, slowly enough for every member.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from tests.conformance.clients.base import Deadline
from tests.conformance.members import Member
from tests.crash.ledger import Ledger
from tests.crash.load import ConfluentLoad
from tests.crash.parts import PATIENCE, Part
from trilogue.client.errors import ClientError
from trilogue.client.kafka import granted, sync

A_ROUND = 15  # messages each 50 ms
SETTLES_WITHIN = 120.0

Make = Callable[[], Member]


class PacedLoad(ConfluentLoad):
    """Some messages at a time, so that the slowest reader follows."""

    def run(self) -> None:
        while not self.stopping.wait(0.05):
            for _ in range(A_ROUND):
                self.send(self.random.randrange(self.partitions))
            self.producer.poll(0)
        if self.producer.flush(PATIENCE):
            self.ledger.fail(f"{len(self.producer)} left after flush")

    def size(self) -> int:
        return 100


class GroupMember(Part):
    """Reads until stopped; what it read is dealt with, then committed, in this order."""

    def __init__(self, make: Make, seen: set[tuple[int, int]]) -> None:
        super().__init__()
        self.make, self.seen = make, seen
        self.reads = self.commits = 0
        self.has: set[int] = set()
        self.problems: list[str] = []
        self.broken: BaseException | None = None
        self.member: Member | None = None

    def run(self) -> None:
        self.member = member = self.make()
        try:
            while not self.stopping.is_set():
                try:
                    self.work(member)
                except Exception as problem:  # noqa: BLE001 - libraries have many words for it
                    self.problems.append(repr(problem)[:200])
                    self.stopping.wait(0.02)
        except BaseException as problem:
            self.broken = problem
            raise
        finally:
            with suppress(Exception):
                member.close()

    def work(self, member: Member) -> None:
        member.poll()
        self.has = member.partitions()
        if member.reads:
            self.seen.update((each.partition, each.offset) for each in member.reads)
            self.reads += len(member.reads)
            member.reads.clear()
            member.commit()
            self.commits += 1


class Watch(Part):
    """`last` is how far the group is, by partition; `went_back` is what must not be.

    With our own client: librdkafka's administrator may abort the process where a server goes away
    during a request (2.16: "eonce->refcnt > 0").
    """

    def __init__(self, address: str, group: str, topic: str, partitions: int) -> None:
        super().__init__()
        self.address, self.group = address, group
        self.places = [(topic, each) for each in range(partitions)]
        self.last = dict.fromkeys(range(partitions), -1)
        self.went_back: list[str] = []
        self.looks = 0

    def run(self) -> None:
        with sync.KafkaClient(self.address, request_timeout_s=10.0) as client:
            while not self.stopping.wait(0.02):
                with suppress(ClientError):
                    self.look(client)

    def look(self, client: sync.KafkaClient) -> None:
        found = granted(client.admin.group_offsets(self.group, self.places))
        reported = {partition: where.offset for (_, partition), where in found.items()}
        for partition, before in self.last.items():
            offset = reported.get(partition, -1)
            if offset < before:
                self.went_back.append(f"{partition}: {before} to {offset}")
            self.last[partition] = offset
        self.looks += 1


def shares(client: sync.KafkaClient, group: str) -> dict[str, set[int]]:
    """The partitions of each member by DescribeGroups; empty unless the group is stable."""
    response = granted(client.admin.describe_groups([group]))[group]
    if response.state != "Stable":
        return {}
    return {
        each.member_id: {place.number for place in each.assignment} for each in response.members
    }


def settle(address: str, group: str, members: list[GroupMember], partitions: int) -> float:
    """Seconds until all partitions are shared among all members, by the server and by them."""
    began = time.monotonic()
    deadline = Deadline(f"{group} to settle", SETTLES_WITHIN)
    wanted, found = list(range(partitions)), {}
    with sync.KafkaClient(address, request_timeout_s=10.0) as client:
        while not (
            len(found) == len(members)
            and sorted(each for has in found.values() for each in has) == wanted
            and sorted(each for member in members for each in member.has) == wanted
        ):
            deadline.check((found, [(sorted(each.has), each.problems[-2:]) for each in members]))
            time.sleep(0.05)  # between two queries to the server
            with suppress(ClientError):
                found = shares(client, group)
    return time.monotonic() - began


def missing(ledger: Ledger, seen: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """The acked messages that no member of the group has read."""
    return {(origin.partition, offset) for origin, offset in ledger.acked.items()} - seen
