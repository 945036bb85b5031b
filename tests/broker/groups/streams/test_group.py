"""Streams groups of a broker, their members driven by hand, through restarts."""

from __future__ import annotations

import pytest

from tests.broker.consumer_room import Room
from trilogue.broker.errors import (
    FencedMemberEpoch,
    GroupMaxSize,
    GroupNotEmpty,
    InvalidRequest,
    InvalidTopology,
    StaleMemberEpoch,
    UnknownGroup,
    UnknownMember,
)
from trilogue.broker.groups.group import STREAMS
from trilogue.broker.groups.reconciliation import LEAVE_EPOCH
from trilogue.broker.groups.streams.group import TOPOLOGY_BYTES_A_NAME
from trilogue.broker.groups.streams.members import (
    Endpoint,
    GroupStatus,
    StreamsHeartbeat,
    StreamsHeartbeatResponse,
)
from trilogue.broker.groups.streams.tasks import NO_TASKS, TaskRole, Tasks, tasks_of_role
from trilogue.broker.groups.streams.topology import InternalTopic, Subtopology, Topology
from trilogue.broker.names import parse_kafka

IN, CHANGELOG = parse_kafka("in"), parse_kafka("app-counts-changelog")
TOPOLOGY = Topology(
    0, (Subtopology("0", source_topics=(IN,), changelogs=(InternalTopic(CHANGELOG),)),)
)
DELAY_S, SESSION_S = 3, 45


class App:
    """Members of group g: each sends its epoch and the tasks that it has."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, Tasks] = {}

    def beat(self, member: str, **fields: object) -> StreamsHeartbeatResponse:
        epoch = fields.pop("epoch", self.epochs.get(member, 0))
        given: dict[str, object] = {"owned": self.owned.get(member, NO_TASKS)}
        if epoch == 0:
            given |= {"topology": TOPOLOGY, "rebalance_timeout_ms": 60_000, "process_id": member}
        heartbeat = StreamsHeartbeat("g", member, epoch, **{**given, **fields})
        response = self.room.broker.streams_groups.heartbeat(heartbeat)
        self.epochs[member] = response.epoch
        if response.assigned is not None:
            self.owned[member] = response.assigned
        return response

    def settle(self, *members: str) -> None:
        for _ in range(4):
            for member in members:
                self.beat(member)

    def active(self, member: str) -> frozenset[int]:
        return tasks_of_role(self.owned.get(member, NO_TASKS), TaskRole.ACTIVE).get(
            "0", frozenset()
        )

    @property
    def state(self) -> str:
        return self.room.broker.streams_groups.find_group("g").state_name


@pytest.fixture
def app() -> App:
    room = Room()
    room.topic("in", 4)
    room.topic(CHANGELOG.name, 4)
    return App(room)


def started(app: App, *members: str) -> App:
    for member in members:
        app.beat(member)
    app.room.timers.advance(DELAY_S)
    app.settle(*members)
    return app


def test_the_first_tasks_come_after_the_delay_of_a_new_group(app: App):
    first = app.beat("a")
    assert (first.epoch, first.assigned) == (1, NO_TASKS)
    assert [status for status, _ in first.statuses] == [GroupStatus.ASSIGNMENT_DELAYED]
    app.beat("b")
    assert app.state == "Assigning"
    app.room.timers.advance(DELAY_S)
    app.settle("a", "b")

    assert {len(app.active("a")), len(app.active("b"))} == {2}
    assert app.active("a") | app.active("b") == frozenset(range(4))
    assert app.state == "Stable"


def test_missing_topics_are_reported_until_they_exist():
    app = App(Room())
    first = app.beat("a")
    assert (GroupStatus.MISSING_SOURCE_TOPICS, "Source topics in are missing.") in first.statuses
    assert app.state == "NotReady"
    app.room.topic("in", 4)
    (missing,) = app.beat("a").missing_topics
    assert (missing.name, missing.partition_count) == (CHANGELOG, 4)
    app.room.topic(CHANGELOG.name, 4)
    started(app, "a")

    assert app.active("a") == frozenset(range(4))


def test_topologies_of_all_groups_have_a_bound():
    """They weigh more than the names of their topics."""
    room = Room(total_max=1_000)
    large = Topology(0, tuple(Subtopology(str(each), (IN,)) for each in range(100)))

    def join(group: str) -> StreamsHeartbeatResponse:
        fields = {"topology": large, "rebalance_timeout_ms": 60_000, "process_id": "p"}
        heartbeat = StreamsHeartbeat(group, "a", 0, owned=NO_TASKS, **fields)
        return room.broker.streams_groups.heartbeat(heartbeat)

    assert 500 < len(large.encoded) // TOPOLOGY_BYTES_A_NAME < 1_000
    join("one")
    with pytest.raises(GroupMaxSize):
        join("two")
    first = room.broker.streams_groups.find_group("one")
    room.broker.streams_groups.heartbeat(StreamsHeartbeat("one", "a", LEAVE_EPOCH))
    first.forget()
    assert room.broker.consumer_groups.context.load.total == 0
    join("two")


def test_a_task_moves_when_its_owner_has_given_it_up(app: App):
    started(app, "a")
    app.beat("b")
    stays = app.beat("a")

    assert stays.assigned is not None
    assert len(app.active("a")) == 2
    assert app.beat("b").assigned in (None, NO_TASKS)
    app.settle("a", "b")
    assert app.active("a") | app.active("b") == frozenset(range(4))
    assert not app.active("a") & app.active("b")


def test_a_member_whose_session_ends_loses_its_tasks(app: App):
    started(app, "a", "b")
    for _ in range(3):
        app.room.timers.advance(SESSION_S / 3 + 1)
        app.beat("a")
    app.settle("a")

    assert app.active("a") == frozenset(range(4))
    with pytest.raises(UnknownMember):
        app.beat("b")


def test_standby_copies_are_with_other_processes(app: App):
    values = app.room.broker.group_values
    plan = values.plan_alter("g", {"streams.num.standby.replicas": "1"})
    app.room.meta.write_now(plan.ops(), plan.preconditions)
    plan.apply()
    started(app, "a", "b")

    standby = tasks_of_role(app.owned["a"], TaskRole.STANDBY)["0"]
    assert standby == app.active("b")


def test_requests_that_do_not_fit_are_refused(app: App):
    started(app, "a")
    other = Topology(0, (Subtopology("1", source_topics=(IN,)),))
    with pytest.raises(InvalidRequest, match="Topology updates"):
        app.beat("b", topology=other)
    with pytest.raises(InvalidRequest, match="does not exist in the topology"):
        app.beat("a", owned={(TaskRole.ACTIVE, "7"): frozenset({0})})
    with pytest.raises(FencedMemberEpoch):
        app.beat("a", epoch=77)
    with pytest.raises(UnknownGroup):
        app.room.broker.consumer_groups.find_group("g")
    with pytest.raises(GroupNotEmpty):
        app.room.broker.group_admin.delete("g")
    empty = App(Room())
    with pytest.raises(InvalidTopology):
        empty.beat("a", topology=Topology(0, (Subtopology("0"),)))
    assert empty.state == "Empty"


def test_offsets_are_committed_at_the_epoch_of_the_member_or_of_its_task(app: App):
    started(app, "a")
    groups, group = app.room.broker.groups, app.room.broker.streams_groups.find_group("g")
    topic_id = app.room.topics["in"].topic_id
    groups.check_commit("g", "a", app.epochs["a"])
    had = app.epochs["a"]
    app.beat("b")
    app.settle("a", "b")

    with pytest.raises(StaleMemberEpoch):
        groups.check_commit("g", "a", had)
    (kept, *_), (lost, *_) = sorted(app.active("a")), sorted(app.active("b"))
    group.check_partition_commit("a", had, topic_id, kept)
    with pytest.raises(StaleMemberEpoch):
        group.check_partition_commit("a", had, topic_id, lost)


def test_a_shutdown_and_endpoints_are_passed_on(app: App):
    started(app, "a", "b")
    first = app.beat("a", endpoint=Endpoint("here", 80), endpoint_epoch=0)
    found = app.beat("b", endpoint_epoch=-1).endpoints or []
    assert [each.endpoint for each in found] == [Endpoint("here", 80)]
    assert found[0].active == [(IN, sorted(app.active("a")))]
    assert first.endpoint_epoch >= 0
    app.beat("a", shutdown=True)

    assert GroupStatus.SHUTDOWN_APPLICATION in [status for status, _ in app.beat("b").statuses]


def test_a_group_goes_on_after_a_restart(app: App):
    started(app, "a", "b")
    before = dict(app.owned)
    room = Room(meta=app.room.meta)
    room.load(app.room.broker.snapshot())
    app.room = room

    app.settle("a", "b")
    assert app.owned == before
    assert app.state == "Stable"
    for member in ("a", "b"):
        app.beat(member, epoch=-1)
    again = Room(meta=room.meta)
    again.load(room.broker.snapshot())
    group = again.broker.streams_groups.find_group("g")
    assert (group.state_name, group.topology) == ("Empty", TOPOLOGY)
    assert again.broker.group_admin.known("g").type == STREAMS
    again.broker.group_admin.delete("g")
    with pytest.raises(UnknownGroup):
        again.broker.streams_groups.find_group("g")
