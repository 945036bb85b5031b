"""The broker's wall clock jumps, or its process is stopped for a while.

The clock goes an hour forward, two hours back and an hour forward by libfaketime, which leaves the
monotonic clock alone: no acked message is lost, duplicated or moved, group members stay members,
offsets stay, and retention removes nothing. After a stop of more than the session timeouts the same
holds, except that members may rejoin.
"""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.brokers import Trilogue
from tests.conformance.kafka.groups.test_consumer_groups import NewConfluent
from tests.conformance.members import ConfluentMember
from tests.crash.kafka.group_load import GroupMember, PacedLoad, Watch, settle
from tests.crash.ledger import Ledger
from tests.crash.load import QUIET, Tail, full_read, running
from tests.crash.parts import PATIENCE
from tests.tools import require

TOPIC, PARTITIONS = "ledger", 4
ACKS_WITHIN = 60.0
TWO_HOURS_MS = 7_200_000
KEPT = {  # more than the jumps take
    "retention.ms": str(TWO_HOURS_MS),
    "message.timestamp.before.max.ms": str(TWO_HOURS_MS),
    "message.timestamp.after.max.ms": str(TWO_HOURS_MS),
}
SETTINGS = {
    "journal.file-size": "256KiB",
    "journal.file-age": "500ms",
    "retention.check-every": "500ms",
    "groups.offset-check": "500ms",
    "groups.offset-retention": "2h",
    "groups.consumer-heartbeat": "500ms",
    "groups.consumer-session-timeout": "6s",
}
UNPACED = {"flush.rate": "0", "merge.rate": "0"}  # libfaketime 0.9.10 does not know how to sleep
GROUPS = {"classic": ConfluentMember, "shared-out": NewConfluent}
JUMPS = ("+3600", "-3600", "+0")  # seconds beside the true time

Report = Callable[[object], None]


def fake_clock() -> str | None:
    """The library that stands between a program and the time."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    return str(found[0]) if found else None


class Scene:
    """A server, producers, a group of either kind with two members, and what they know."""

    def __init__(self, server: Trilogue, chance: random.Random) -> None:
        self.server = server
        server.settings.update(SETTINGS)
        server.start()
        address = server.address
        admin = AdminClient({"bootstrap.servers": address, **QUIET})
        (made,) = admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=KEPT)]).values()
        made.result(PATIENCE)
        self.ledger = Ledger(chance.randbytes(8))
        seed = chance.randrange(10**6)
        self.loads = [
            PacedLoad(address, TOPIC, PARTITIONS, self.ledger, number=1, seed=seed),
            Tail(address, TOPIC, PARTITIONS, self.ledger),
        ]
        self.members = {
            group: [GroupMember(partial(kind, address, group, TOPIC), set()) for _ in range(2)]
            for group, kind in GROUPS.items()
        }
        self.watches = [Watch(address, group, TOPIC, PARTITIONS) for group in GROUPS]

    @property
    def readers(self) -> list[GroupMember]:
        return [each for group in self.members.values() for each in group]

    @contextmanager
    def going_on(self) -> Iterator[None]:
        with running([*self.loads, *self.watches, *self.readers]):
            self.settle()
            self.ledger.wait_for_acks(200, ACKS_WITHIN)
            yield
            self.ledger.wait_for_acks(200, ACKS_WITHIN)
            self.settle()

    def settle(self) -> float:
        address = self.server.address
        return max(settle(address, name, of, PARTITIONS) for name, of in self.members.items())

    def rebalances(self) -> list[int]:
        return [each.member.rebalances for each in self.readers]

    def judge(self, report: Report) -> None:
        verdict = self.ledger.verdict(full_read(self.server.address, TOPIC, PARTITIONS))
        commits = [each.commits for each in self.readers]
        report(f"{verdict}; commits {commits}; looks {[each.looks for each in self.watches]}")
        assert verdict.bad == {}, verdict.examples
        assert [each.went_back for each in self.watches] == [[], []]
        assert [each.broken for each in self.readers] == [None] * 4


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seconds", [0.3, pytest.param(10, marks=pytest.mark.long)])
def test_the_time_of_day_may_jump_by_an_hour(
    trilogue: Trilogue, chance: random.Random, report: Report, tmp_path: Path, seconds: float
):
    library = fake_clock()
    require("faketime", found=library)
    time_file = tmp_path / "time"
    time_file.write_text("+0")
    trilogue.settings.update(UNPACED)
    trilogue.wrapper = (
        "env", f"LD_PRELOAD={library}", f"FAKETIME_TIMESTAMP_FILE={time_file}",
        "FAKETIME_CACHE_DURATION=1", "FAKETIME_DONT_FAKE_MONOTONIC=1",
    )  # fmt: skip
    scene = Scene(trilogue, chance)
    with scene.going_on():
        before = scene.rebalances()
        for jump in JUMPS:
            time_file.write_text(jump)
            threading.Event().wait(seconds + 1)  # it is looked at once a second
            scene.ledger.wait_for_acks(50, ACKS_WITHIN)
        after = scene.rebalances()
        has_jumped = jumped(trilogue.output)

    scene.judge(report)
    assert after == before, "members were taken for dead"
    assert has_jumped, "the clock never jumped"


def jumped(output: str) -> bool:
    """Whether lines of its log are an hour from one another."""
    hours = {line[11:13] for line in output.splitlines() if line[:2] == "20"}
    return len(hours) > 1


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seconds", [1.5, pytest.param(15, marks=pytest.mark.long)])
def test_a_server_that_stood_still_goes_on_as_if_nothing_had_been(
    trilogue: Trilogue, chance: random.Random, report: Report, seconds: float
):
    """Fifteen seconds are more than the sessions of all members take."""
    scene = Scene(trilogue, chance)
    with scene.going_on():
        trilogue.running.signal(signal.SIGSTOP)
        threading.Event().wait(seconds)
        trilogue.running.signal(signal.SIGCONT)
        scene.ledger.wait_for_acks(50, ACKS_WITHIN)

    scene.judge(report)
