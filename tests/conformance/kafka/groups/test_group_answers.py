"""Group coordination, response by response, as of real brokers of 3.9.1 and 4.3.1.

For rules that no client library shows: each test builds its requests, and holds on a real Kafka too
(TRILOGUE_TEST_REAL=3.9.1, 4.3.1). Members are those of a protocol of the test's own making.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conformance.asking import Asker
from tests.conformance.clients import DEADLINE
from tests.conformance.clients.base import Deadline
from trilogue.wire.kafka.groups.classic import (
    Coordinator,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from trilogue.wire.kafka.groups.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from trilogue.wire.kafka.groups.delete_groups import (
    DeleteGroupsRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from trilogue.wire.kafka.groups.describe_groups import DescribeGroupsRequest
from trilogue.wire.kafka.groups.list_groups import ListGroupsRequest
from trilogue.wire.kafka.groups.member_metadata import Subscription, encode_subscription

_numbers = itertools.count(1)
RANGE = (("range", b"r"),)


class Group:
    """One group and the questions about it; every member has a connection of its own."""

    def __init__(self, address: str, name: str, topic: str) -> None:
        self.name, self.topic = name, topic
        self.members: list[Member] = []
        found = Deadline("a coordinator", DEADLINE)
        with Asker(address) as asker:
            while (coordinator := self.find(asker)).error_code != 0:
                found.check()
        self.address = f"{coordinator.host}:{coordinator.port}"
        self.outside = Asker(self.address)

    def find(self, asker: Asker) -> Coordinator:
        request = FindCoordinatorRequest(coordinator_keys=[self.name])
        (found,) = asker.request(request, 4).coordinators
        assert isinstance(found, Coordinator)
        return found

    def member(self, instance: str | None = None) -> Member:
        self.members.append(Member(self, instance))
        return self.members[-1]

    def settled(self, *protocols: tuple[tuple[str, bytes], ...], kind: str = "consumer"):
        """Members that are all in and have their assignments, the leader first."""
        members: list[Member] = []
        for number, metadata in enumerate(protocols):
            members.append(self.member())
            members[-1].sends_join(metadata, kind)
            if number:
                self.wait_for("PreparingRebalance")
            for member, again in zip(members[:-1], protocols, strict=False):
                member.sends_join(again, kind)
            for member in members:
                assert member.joined().error_code == 0
        members.sort(key=lambda member: not member.leads)
        for member in reversed(members):
            member.sends_sync(members)
        assert [member.synced()[0] for member in members] == [0] * len(members)
        return members

    def state(self) -> tuple[str, str, int]:
        (reported,) = self.outside.request(DescribeGroupsRequest(groups=[self.name]), 5).groups
        return reported.group_state, reported.protocol_data, len(reported.members)

    def wait_for(self, state: str) -> None:
        waiting = Deadline(state, DEADLINE)
        while self.state()[0] != state:
            waiting.check(self.state())

    def commit(self, generation: int = -1, member_id: str = "", *, version: int = 8) -> int:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topic = OffsetCommitRequestTopic(name=self.topic, partitions=[partition])
        request = OffsetCommitRequest(
            group_id=self.name,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[topic],
        )
        return self.outside.request(request, version).topics[0].partitions[0].error_code

    def delete(self) -> int:
        return (
            self.outside.request(DeleteGroupsRequest(groups_names=[self.name]), 2)
            .results[0]
            .error_code
        )

    def offset_delete(self, *partitions: tuple[str, int]) -> tuple[int, dict[str, int]]:
        topics = [
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index)]
            )
            for name, index in partitions
        ]
        answer = self.outside.request(OffsetDeleteRequest(group_id=self.name, topics=topics), 0)
        return answer.error_code, {
            topic.name: topic.partitions[0].error_code for topic in answer.topics
        }

    def listed(self, **filters: list[str]) -> bool:
        answer = self.outside.request(
            ListGroupsRequest(
                states_filter=filters.get("states", []), types_filter=filters.get("types", [])
            ),
            5,
        )
        return self.name in {each.group_id for each in answer.groups}

    def close(self) -> None:
        for asker in (self.outside, *(member.asker for member in self.members)):
            asker.close()


class Member:
    """One member by hand."""

    def __init__(self, group: Group, instance: str | None) -> None:
        self.group, self.instance = group, instance
        self.asker = Asker(group.address)
        self.id, self.generation, self.protocol, self.leads = "", -1, "", False

    def sends_join(
        self, protocols=RANGE, kind: str = "consumer", *, version: int = 9, session_ms: int = 30_000
    ) -> None:
        def request() -> JoinGroupRequest:
            return JoinGroupRequest(
                group_id=self.group.name,
                session_timeout_ms=session_ms,
                rebalance_timeout_ms=30_000,
                member_id=self.id,
                group_instance_id=self.instance,
                protocol_type=kind,
                protocols=[JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols],
            )

        if version >= 4 and not self.id and self.instance is None:
            response = self.asker.request(request(), version)
            if response.error_code != 79:
                self.refused = response.error_code
                return
            self.id = response.member_id
        self.asker.send(request(), version)

    def joined(self):
        answer = self.asker.answer()
        if answer.error_code == 0:
            self.id, self.generation = answer.member_id, answer.generation_id
            self.protocol = answer.protocol_name
            self.leads = answer.leader == answer.member_id and not answer.skip_assignment
        return answer

    def sends_sync(self, members: list[Member]) -> None:
        given = [
            SyncGroupRequestAssignment(member_id=each.id, assignment=each.id.encode())
            for each in members
        ]
        self.asker.send(
            SyncGroupRequest(
                group_id=self.group.name,
                generation_id=self.generation,
                member_id=self.id,
                group_instance_id=self.instance,
                protocol_type="consumer",
                protocol_name=self.protocol,
                assignments=given if self.leads else [],
            ),
            3,
        )

    def synced(self) -> tuple[int, bytes]:
        answer = self.asker.answer()
        return answer.error_code, bytes(answer.assignment)

    def heartbeat(self) -> int:
        request = HeartbeatRequest(
            group_id=self.group.name,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance,
        )
        return self.group.outside.request(request, 4).error_code

    def commit(self) -> int:
        return self.group.commit(self.generation, self.id)

    def leave(self, *, by_instance: bool = False) -> int:
        client = MemberIdentity(
            member_id="" if by_instance else self.id, group_instance_id=self.instance
        )
        request = LeaveGroupRequest(group_id=self.group.name, members=[client])
        return self.group.outside.request(request, 5).members[0].error_code


@pytest.fixture
def group(address: str, topic: str) -> Iterator[Group]:
    admin = AdminClient({"bootstrap.servers": address})
    for made in admin.create_topics([NewTopic(topic, 2, 1), NewTopic(topic + ".u", 1, 1)]).values():
        made.result(DEADLINE)
    made = Group(address, f"{topic}.{next(_numbers)}", topic)
    yield made
    made.close()


def test_votes_decide_among_what_all_have(group: Group):
    """The protocol that most members prefer, of those that all members support."""
    protocols = (("rr", b""), ("range", b"")), (("range", b""), ("rr", b"")), (("range", b""),)

    members = group.settled(*protocols)

    assert {member.protocol for member in members} == {"range"}
    assert group.state() == ("Stable", "range", 3)


def test_heartbeat_and_commit_errors_in_each_group_state(group: Group):
    leader, other = group.settled(RANGE, RANGE)
    stable = leader.heartbeat(), leader.commit()
    other.sends_join((("range", b"changed"),))
    group.wait_for("PreparingRebalance")
    preparing = leader.heartbeat(), leader.commit()
    leader.sends_join()
    leader.joined(), other.joined()
    completing = leader.heartbeat(), leader.commit(), group.state()

    assert stable == (0, 0)
    assert preparing == (27, 0)
    assert completing == (0, 27, ("CompletingRebalance", "", 2))


def test_follower_rejoin_keeps_the_generation_and_leader_rejoin_rebalances(group: Group):
    leader, other = group.settled(RANGE, RANGE)

    other.sends_join()
    again = other.joined()
    leader.sends_join()
    group.wait_for("PreparingRebalance")

    assert other.heartbeat() == 27
    assert (again.error_code, again.generation_id) == (0, leader.generation)


def test_a_sync_that_waits_is_ended_by_a_newcomer(group: Group):
    leader, other = group.settled(RANGE, RANGE)
    leader.sends_join()
    group.wait_for("PreparingRebalance")
    other.sends_join()
    leader.joined(), other.joined()
    follower = other if leader.leads else leader

    follower.sends_sync([])
    group.member().sends_join()

    assert follower.synced() == (27, b"")


def test_a_static_member_comes_back_to_what_it_had(group: Group):
    """KIP-345, KIP-814: no rebalance; the former process is fenced."""
    first, second = group.member("i"), group.member("i")
    first.sends_join()
    first.joined()
    first.sends_sync([first])
    assigned = first.synced()
    second.sends_join()
    again = second.joined()
    second.sends_sync([])

    assert (again.error_code, again.generation_id, again.skip_assignment) == (0, 1, True)
    assert second.synced() == assigned
    assert (first.heartbeat(), second.heartbeat(), first.leave()) == (82, 0, 82)
    assert group.commit(1, first.id) == 25
    assert second.leave(by_instance=True) == 0
    assert group.state()[0] == "Empty"


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"protocols": ()}, 23),
        ({"kind": ""}, 23),
        ({"session_ms": 5}, 26),
        ({"session_ms": 2**31 - 1}, 26),
    ],
)
def test_joins_that_cannot_be(group: Group, how: dict[str, object], code: int):
    member = group.member()
    member.sends_join(**how)

    assert member.refused == code


@pytest.mark.parametrize("version", [0, 3, 4, 9])
def test_an_id_that_no_client_gave_is_unknown_in_every_version(group: Group, version: int):
    member = group.member()
    member.id = "nobody"
    member.sends_join(version=version)

    assert member.joined().error_code == 25


def test_inconsistent_protocol_precedes_unknown_member(group: Group):
    group.settled(RANGE)
    for protocols, kind in ((("zz", b""),), "consumer"), (RANGE, "connect"):
        stranger = group.member()
        stranger.id = "nobody"
        stranger.sends_join(protocols, kind)
        assert stranger.joined().error_code == 23


@pytest.mark.parametrize(
    ("send", "codes"),
    [
        (lambda group: group.commit(), (0,)),
        (lambda group: group.commit(3, "x"), (22,)),
        (lambda group: group.commit(-1, "x"), (0,)),
        (lambda group: group.delete(), (69,)),
        (lambda group: group.offset_delete((group.topic, 0))[0], (69,)),
        (lambda group: group.member().heartbeat(), (25,)),
        (lambda group: group.member().leave(), (25,)),
    ],
    ids=[
        "commit",
        "commit-generation",
        "commit-member",
        "delete",
        "offset-delete",
        "beat",
        "leave",
    ],
)
def test_requests_of_an_unknown_group_return_its_error(
    group: Group, send: Callable[[Group], int], codes: tuple[int, ...]
):
    assert send(group) in codes


def test_a_group_of_positions_alone(group: Group):
    assert group.commit() == 0

    assert group.state() == ("Empty", "", 0)
    assert group.listed(states=["empty"], types=["Classic"])
    assert not group.listed(states=["Stable"])
    assert not group.listed(types=["consumer"])
    assert (group.commit(0), group.commit(0, "x", version=9)) == (25, 25)
    assert group.delete() == 0
    assert group.delete() == 69
    assert group.state() == ("Dead", "", 0)


def test_positions_that_may_be_deleted(group: Group):
    """KIP-496."""
    protocols = encode_subscription(Subscription(topics=[group.topic]), 1)
    (member,) = group.settled((("range", protocols),))
    other = group.topic + ".u"

    code, outcomes = group.offset_delete((group.topic, 0), (other, 0), ("nowhere", 0))

    assert (code, outcomes) == (0, {group.topic: 86, other: 0, "nowhere": 3})
    assert group.delete() == 68
    assert member.leave() == 0
    assert group.offset_delete((group.topic, 0)) == (0, {group.topic: 0})


def test_positions_of_members_of_another_kind_stay(group: Group):
    (member,) = group.settled((("range", b""),), kind="consumer")
    assert member.leave() == 0
    other = group.member()
    other.sends_join(kind="connect")
    other.joined()

    assert group.offset_delete((group.topic, 0)) == (68, {})


@pytest.mark.parametrize(("kind", "versions"), [(2, (1, 4, 5)), (3, (1, 4, 6)), (-1, (1, 6))])
def test_coordinators_of_kinds_that_are_not_there(group: Group, kind: int, versions):
    for version in versions:
        request = FindCoordinatorRequest(key="k", key_type=kind, coordinator_keys=["k"])
        answer = group.outside.request(request, version)
        reported = answer if version < 4 else answer.coordinators[0]
        assert reported.error_code == 42
