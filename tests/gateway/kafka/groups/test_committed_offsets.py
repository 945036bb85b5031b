"""OffsetCommit and OffsetFetch: offsets are durable, bad partitions do not affect others."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.rig import Rig, settle, versions
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import UnknownMember
from trilogue.broker.facts import Protocol
from trilogue.broker.groups.classic.group import ClassicGroup
from trilogue.wire.kafka.groups.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)


def commit(
    topic: str, *offsets: int, group: str = "g", topic_id: bytes = bytes(16), metadata="m", **how
) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index,
            committed_offset=offset,
            committed_leader_epoch=2,
            committed_metadata=metadata,
        )
        for index, offset in enumerate(offsets)
    ]
    topics = [OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=partitions)]
    return OffsetCommitRequest(group_id=group, topics=topics, **how)


def fetch(
    version: int, topic: str | None, *indexes: int, group: str = "g", topic_id: bytes = bytes(16)
) -> OffsetFetchRequest:
    """Fetch the offsets of one group; topic None is all."""
    if version < 8:
        old = OffsetFetchRequestTopic(name=topic or "", partition_indexes=list(indexes))
        return OffsetFetchRequest(group_id=group, topics=None if topic is None else [old])
    new = OffsetFetchRequestTopics(
        name=topic or "", topic_id=topic_id, partition_indexes=list(indexes)
    )
    requested = OffsetFetchRequestGroup(group_id=group, topics=None if topic is None else [new])
    return OffsetFetchRequest(groups=[requested])


def committed(response) -> list[int]:
    (topic,) = response.topics
    return [each.error_code for each in topic.partitions]


def positions(version: int, response) -> dict[str, list[tuple[int, int, int]]]:
    topics = response.topics if version < 8 else response.groups[0].topics
    return {
        topic.name: [
            (each.partition_index, each.committed_offset, each.error_code)
            for each in topic.partitions
        ]
        for topic in topics
    }


@pytest.mark.parametrize("version", versions(8))
@on_loop
async def test_every_version_commits(version):
    async with Rig() as rig:
        topic = rig.topic("t", partitions=2)
        peer = rig.peer()

        answer = await peer.request(commit("t", 5, 7, topic_id=topic.topic_id), version)

        assert committed(answer) == [0, 0]
        reported = await peer.request(fetch(5, "t", 0, 1), 5)
        assert positions(5, reported) == {"t": [(0, 5, 0), (1, 7, 0)]}
        first = reported.topics[0].partitions[0]
        assert (first.metadata, first.committed_leader_epoch) == ("m", 2 if version >= 6 else -1)


@pytest.mark.parametrize("version", versions(9))
@on_loop
async def test_every_version_returns_committed_offsets_or_minus_one(version):
    async with Rig() as rig:
        topic = rig.topic("t", partitions=2)
        peer = rig.peer()
        await peer.request(commit("t", 5), 6)

        reported = await peer.request(
            fetch(version, "t", 0, 1, 9, topic_id=topic.topic_id), version
        )

        name = "t" if version < 10 else ""
        assert positions(version, reported) == {name: [(0, 5, 0), (1, -1, 0), (9, -1, 0)]}


@pytest.mark.parametrize("version", [each for each in versions(9) if each >= 2])
@on_loop
async def test_null_topics_are_all_positions_of_the_group(version):
    """v2+: null topics = all."""
    async with Rig() as rig:
        rig.topic("t", partitions=2)
        rig.topic("u")
        rig.topic("other")
        peer = rig.peer()
        await peer.request(commit("t", 5, 6), 6)
        await peer.request(commit("u", 7), 6)
        await peer.request(commit("other", 8, group="h"), 6)

        answer = await peer.request(fetch(version, None), version)

        topics = answer.topics if version < 8 else answer.groups[0].topics
        offsets = [[each.committed_offset for each in topic.partitions] for topic in topics]
        assert sorted(offsets) == [[5, 6], [7]]
        ids = {rig.gateway.topic(name).topic_id for name in "tu"}
        assert version < 10 or {topic.topic_id for topic in topics} == ids
        assert version >= 10 or {topic.name for topic in topics} == {"t", "u"}


@on_loop
async def test_one_request_returns_offsets_of_several_groups():
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()
        for number, group in enumerate("gh"):
            await peer.request(commit("t", number, group=group), 6)
        requested = fetch(8, "t", 0)
        requested.groups += fetch(8, "t", 0, group="h").groups

        reported = await peer.request(requested, 8)

        offsets = [
            (group.group_id, group.topics[0].partitions[0].committed_offset)
            for group in reported.groups
        ]
        assert offsets == [("g", 0), ("h", 1)]


@on_loop
async def test_offset_commit_is_answered_and_visible_when_durable():
    """An acknowledged commit never goes back."""
    async with Rig() as rig:
        rig.topic("t")
        peer, other = rig.peer(), rig.peer()

        peer.send(commit("t", 5), 6)
        assert peer.answered == 0
        assert positions(5, await other.request(fetch(5, "t", 0), 5)) == {"t": [(0, -1, 0)]}
        await settle()

        assert committed(peer.answer()) == [0]
        assert positions(5, await other.request(fetch(5, "t", 0), 5)) == {"t": [(0, 5, 0)]}


@on_loop
async def test_a_commit_that_the_disk_did_not_keep_is_a_storage_error():
    async with Rig() as rig:
        rig.topic("t", partitions=2)
        rig.fail_disk("write")

        assert committed(await rig.peer().request(commit("t", 5, 7, 8), 6)) == [56, 56, 3]


@on_loop
async def test_one_bad_partition_does_not_spoil_the_others():
    async with Rig() as rig:
        rig.topic("t", partitions=2)
        peer = rig.peer()

        answer = await peer.request(commit("t", 5, -2, 8), 6)

        assert committed(answer) == [0, 0, 3]
        reported = positions(5, await peer.request(fetch(5, "t", 0, 1, 2), 5))
        assert reported == {"t": [(0, 5, 0), (1, -2, 0), (2, -1, 0)]}


@pytest.mark.parametrize("version", [each for each in versions(8) if each < 10])
@on_loop
async def test_a_name_that_no_topic_can_have_is_an_unknown_topic(version):
    async with Rig() as rig:
        peer = rig.peer()

        assert committed(await peer.request(commit("a b", 1), version)) == [3]
        reported = await peer.request(fetch(version, "a b", 0), version)
        assert positions(version, reported) == {"a b": [(0, -1, 0)]}


@on_loop
async def test_metadata_beyond_the_limit_is_refused():
    async with Rig() as rig:
        rig.topic("t")

        assert committed(await rig.peer().request(commit("t", 5, metadata="x" * 5_000), 6)) == [12]


@on_loop
async def test_null_metadata_comes_back_as_an_empty_text():
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()
        await peer.request(commit("t", 5, metadata=None), 6)

        reported = await peer.request(fetch(5, "t", 0), 5)

        assert reported.topics[0].partitions[0].metadata == ""


@on_loop
async def test_unknown_topics_and_ids():
    async with Rig() as rig:
        peer = rig.peer()

        assert committed(await peer.request(commit("missing", 5), 6)) == [3]
        assert committed(await peer.request(commit("", 5, topic_id=bytes(range(16))), 10)) == [100]
        assert positions(5, await peer.request(fetch(5, "missing", 0), 5)) == {
            "missing": [(0, -1, 0)]
        }
        unknown = await peer.request(fetch(10, "", 0, topic_id=bytes(range(16))), 10)
        assert positions(10, unknown) == {"": [(0, -1, 100)]}


@pytest.mark.parametrize(
    ("generation", "member", "code"), [(3, "m", 22), (-1, "", 0), (-1, "m", 0)]
)
@on_loop
async def test_a_group_without_members_takes_manual_commits_only(generation, member, code):
    async with Rig() as rig:
        rig.topic("t")
        how = {"generation_id_or_member_epoch": generation, "member_id": member}

        assert committed(await rig.peer().request(commit("t", 5, **how), 6)) == [code]


@on_loop
async def test_offsets_without_group_or_topic_permission_are_denied():
    async with Rig() as rig:
        rig.topic("t")
        rig.topic("u")
        peer = rig.peer()
        rig.rules.deny(Operation.READ, ResourceKind.GROUP, "closed")
        rig.rules.deny(Operation.DESCRIBE, ResourceKind.GROUP, "closed")
        rig.rules.deny(Operation.READ, ResourceKind.TOPIC, "public/default/u")
        rig.rules.deny(Operation.DESCRIBE, ResourceKind.TOPIC, "public/default/u")

        assert committed(await peer.request(commit("t", 5, group="closed"), 6)) == [30]
        assert committed(await peer.request(commit("u", 5), 6)) == [29]
        reported = await peer.request(fetch(5, "t", 0, group="closed"), 5)
        assert (reported.error_code, positions(5, reported)) == (30, {"t": [(0, -1, 0)]})
        old = await peer.request(fetch(1, "t", 0, group="closed"), 1)
        assert positions(1, old) == {"t": [(0, -1, 30)]}
        new = await peer.request(fetch(8, None, group="closed"), 8)
        assert (new.groups[0].error_code, new.groups[0].topics) == (30, [])
        assert positions(5, await peer.request(fetch(5, "u", 0), 5)) == {"u": [(0, -1, 29)]}


# ---- since when, and for how long


def kept(rig: Rig, group: str = "g") -> list[tuple[int, int]]:
    """Return (commit timestamp, retention) of all offsets."""
    found = rig.broker.committed_offsets.positions(Protocol.KAFKA, group).values()
    return [(each.committed_ms, each.retention_ms) for each in found]


@pytest.mark.parametrize("version", versions(8))
@on_loop
async def test_only_v2_to_v4_have_a_retention_time(version):
    """KIP-211 removed the field in v5."""
    async with Rig() as rig:
        topic = rig.topic("t")
        requested = commit("t", 5, retention_time_ms=77, topic_id=topic.topic_id)

        await rig.peer().request(requested, version)

        assert kept(rig) == [(rig.now_ms, 77 if 2 <= version <= 4 else -1)]


@pytest.mark.parametrize("given", [-1, -2, -(2**63)])
@on_loop
async def test_a_time_below_zero_leaves_it_to_the_broker(given):
    async with Rig() as rig:
        rig.topic("t")

        await rig.peer().request(commit("t", 5, retention_time_ms=given), 3)

        assert kept(rig) == [(rig.now_ms, -1)]


@pytest.mark.parametrize("version", [0, 1, 2])
@on_loop
async def test_only_v1_has_a_commit_timestamp_per_partition(version):
    async with Rig() as rig:
        rig.topic("t", partitions=3)
        requested = commit("t", 5, 6, 7)
        requested.topics[0].partitions[0].commit_timestamp = 99
        requested.topics[0].partitions[2].commit_timestamp = -7

        assert committed(await rig.peer().request(requested, version)) == [0, 0, 0]

        first = 99 if version == 1 else rig.now_ms
        assert [when for when, _ in kept(rig)] == [first, rig.now_ms, rig.now_ms]


@on_loop
async def test_error_of_one_group_leaves_offsets_of_others_returned():
    """OffsetFetch v9: an error of the group (KIP-848), without topics."""

    class Strict(ClassicGroup):
        def check_fetch(self, member_id: str | None, epoch: int) -> None:
            if (member_id, epoch) != ("m", 3):
                raise UnknownMember("who?")

    async with Rig() as rig:
        rig.topic("t")
        groups = rig.broker.groups
        strict = Strict("g", groups.settings, groups.timers, str, groups.on_emptied)
        groups.replace("g", strict)
        requested = fetch(9, "t", 0)
        requested.groups.append(fetch(9, "t", 0, group="h").groups[0])

        refused = await rig.peer().request(requested, 9)
        requested.groups[0].member_id, requested.groups[0].member_epoch = "m", 3
        reported = await rig.peer().request(requested, 9)

        assert [(each.error_code, len(each.topics)) for each in refused.groups] == [(25, 0), (0, 1)]
        assert [each.error_code for each in reported.groups] == [0, 0]


@on_loop
async def test_all_offsets_of_a_group_are_returned_once_per_request():
    """A small request must not get an unlimited response: all offsets, thousands of times."""
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()
        for group in "gh":
            await peer.request(commit("t", 1, group=group), 6)
        requested = fetch(8, None)
        requested.groups *= 1_000
        requested.groups += fetch(8, "t", 0).groups * 2 + fetch(8, None, group="h").groups

        reported = await peer.request(requested, 8)

        assert [group.group_id for group in reported.groups] == ["g", "g", "g", "h"]
        assert {group.topics[0].partitions[0].committed_offset for group in reported.groups} == {1}


@on_loop
async def test_a_commit_of_very_many_times_is_one_of_the_last_time():
    async with Rig() as rig:
        rig.topic("t", 101)
        requested = commit("t", *range(101))
        for at, each in enumerate(requested.topics[0].partitions):
            each.commit_timestamp = 1_000 + at

        assert committed(await rig.peer().request(requested, 1)) == [0] * 101

        assert {when for when, _ in kept(rig)} == {1_100}
