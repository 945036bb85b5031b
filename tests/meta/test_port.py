"""The contract of meta, held by every store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.meta.samples import segment, topic
from tests.postgres import PostgresServer
from tests.waiting import run_ready_tasks
from trilogue.log.errors import StorageFailed
from trilogue.log.segments.manifest import ManifestTopic, PartitionRange
from trilogue.log.segments.segment_info import without
from trilogue.meta.errors import Fenced, InvalidChange, NoIdsLeft, PreconditionFailed
from trilogue.meta.memory import MemoryMeta
from trilogue.meta.operations import (
    INT_MAX,
    OPS_MAX,
    VALUE_SIZE_MAX,
    AllocateIds,
    AssignSlots,
    BeginEpoch,
    ChangeResult,
    DeleteSegment,
    DeleteSetting,
    DeleteSnapshot,
    DeleteTopic,
    Fence,
    FlushedThroughIs,
    GiveSlots,
    IdBlock,
    Op,
    PartitionExists,
    PartitionState,
    Precondition,
    PutPartitionState,
    PutSegment,
    PutSetting,
    PutSnapshot,
    PutTopic,
    SegmentExists,
    SetFlushedThrough,
    SettingIs,
    TopicAbsent,
    TopicIs,
)
from trilogue.meta.port import Meta
from trilogue.meta.sqlite import SqliteMeta
from trilogue.meta.state import RULES

CLUSTER = b"cluster-id-16-by"


def memory(_: Path) -> Meta:
    return MemoryMeta(CLUSTER)


def sqlite(directory: Path) -> Meta:
    return SqliteMeta.open(directory / "meta.sqlite", create=True, new_cluster_id=lambda: CLUSTER)


def postgres(url: str) -> Meta:
    from trilogue.meta.postgres import PostgresMeta

    return PostgresMeta.open(url, new_cluster_id=lambda: CLUSTER)


STORES: list[Callable[[Path], Meta]] = [memory, sqlite]
POSTGRES = "postgres"


@pytest.fixture(params=[*STORES, POSTGRES])
def meta(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Meta]:
    if request.param == POSTGRES:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        store = postgres(server.emptied_database())
    else:
        store = request.param(tmp_path)
    yield store
    store.close()


def commit(
    meta: Meta,
    *ops: Op,
    preconditions: Sequence[Precondition] = (),
    fence: Fence | None = None,
) -> ChangeResult:
    async def once() -> ChangeResult:
        return await meta.write(ops, preconditions, fence)

    return asyncio.run(once())


def test_a_topic_brings_its_partitions_and_takes_them_along(meta: Meta):
    row = topic("orders", 1, 2)

    commit(meta, PutTopic(row))

    assert meta.state.topics == {("public", "default", "orders"): row}
    assert meta.state.topic_keys == {row.topic_id: row.key}
    assert meta.state.partitions == dict.fromkeys((1, 2), PartitionState(row.topic_id, 0, 0))

    commit(meta, DeleteTopic(*row.key))

    assert (meta.state.topics, meta.state.topic_keys, meta.state.partitions) == ({}, {}, {})


def test_a_topic_may_grow_and_keeps_what_its_partitions_reached(meta: Meta):
    commit(meta, PutTopic(topic("orders", 1)), PutPartitionState(1, 3, 9))

    commit(meta, PutTopic(topic("orders", 1, 2, epoch=1)))

    ends = {each: state.flushed_end for each, state in meta.state.partitions.items()}
    assert ends == {1: 9, 2: 0}


def test_starts_and_ends_move_apart_and_never_back(meta: Meta):
    commit(meta, PutTopic(topic("orders", 1)), PutPartitionState(1, flushed_end=9))
    commit(meta, PutPartitionState(1, start_offset=4))

    for wrong in (PutPartitionState(1, flushed_end=8), PutPartitionState(1, start_offset=-1)):
        with pytest.raises(InvalidChange):
            commit(meta, wrong)
    commit(meta, PutPartitionState(1, start_offset=3))  # decided before the other was applied
    assert meta.state.partitions[1] == PartitionState(topic("orders").topic_id, 4, 9)


def test_a_partition_deleted_during_a_flush_is_passed_over(meta: Meta):
    commit(meta, PutTopic(topic("orders", 1)))

    commit(meta, PutPartitionState(2, flushed_end=9), SetFlushedThrough(5))

    assert meta.state.flushed_through == 5
    assert 2 not in meta.state.partitions


def test_segments_come_and_go(meta: Meta):
    commit(meta, PutSegment(segment(1, 7, 8)), PutSegment(segment(2)))

    assert meta.state.segments == {1: segment(1, 7, 8), 2: segment(2)}

    commit(meta, DeleteSegment(1))

    assert meta.state.segments == {2: segment(2)}


def test_a_segment_may_count_for_less_and_move_to_a_store(meta: Meta):
    commit(meta, PutSegment(segment(1, 7, 8, 9)))
    less = without(segment(1, 7, 8, 9), [8, 9])
    moved = replace(less, store="objects")

    commit(meta, PutSegment(less))
    assert meta.state.segments == {1: less}
    commit(meta, PutSegment(moved))
    assert meta.state.segments == {1: moved}

    with pytest.raises(InvalidChange, match="segment 1 exists"):
        commit(meta, PutSegment(segment(1, 7, 8, 9)))
    assert meta.state.segments == {1: moved}


def test_compaction_and_open_transactions_are_states_of_a_partition(meta: Meta):
    commit(meta, PutTopic(topic("orders", 1)), PutPartitionState(1, 2, 9))

    commit(meta, PutPartitionState(1, compacted_end=5, open_transactions=((77, 3), (78, 4))))
    commit(meta, PutPartitionState(1, start_offset=3))

    state = meta.state.partitions[1]
    assert (state.start_offset, state.flushed_end, state.compacted_end) == (3, 9, 5)
    assert state.open_transactions == ((77, 3), (78, 4))
    commit(meta, PutPartitionState(1, open_transactions=()))
    assert meta.state.partitions[1].open_transactions == ()
    with pytest.raises(InvalidChange, match="go back"):
        commit(meta, PutPartitionState(1, compacted_end=4))


def test_settings_come_and_go(meta: Meta):
    commit(meta, PutSetting("a", "1"), PutSetting("b", "2"), PutSetting("a", "3"))
    commit(meta, DeleteSetting("b"), DeleteSetting("never set"))

    assert meta.state.settings == {"a": "3"}


def test_snapshots_are_read_from_the_store(meta: Meta):
    commit(meta, PutSnapshot(b"b", b"1"), PutSnapshot(b"a", b"2"), PutSnapshot(b"c", b""))
    commit(meta, PutSnapshot(b"b", b"3"), DeleteSnapshot(b"a"), DeleteSnapshot(b"never put"))

    assert list(meta.snapshots()) == [(b"b", b"3"), (b"c", b"")]


def test_a_commit_is_all_or_nothing(meta: Meta):
    before = commit(meta, PutSetting("a", "1")).version

    with pytest.raises(InvalidChange):
        commit(
            meta,
            PutTopic(topic("orders", 1)),
            PutSetting("a", "2"),
            PutSnapshot(b"x", b"y"),
            AllocateIds("partition", 5),
            DeleteTopic("no", "such", "topic"),
        )

    assert meta.state.settings == {"a": "1"}
    assert (meta.state.topics, meta.state.partitions, list(meta.snapshots())) == ({}, {}, [])
    assert commit(meta, AllocateIds("x", 1)) == ChangeResult(before + 1, (IdBlock("x", 1, 1),))


def test_operations_see_those_before_them(meta: Meta):
    row = topic("orders", 1)
    commit(meta, PutTopic(row))

    commit(meta, DeleteTopic(*row.key), PutTopic(topic("orders", 2, topic_id=bytes(16))))

    assert list(meta.state.partitions) == [2]


@pytest.mark.parametrize(
    ("holds", "fails"),
    [
        (TopicAbsent("public", "default", "other"), TopicAbsent("public", "default", "orders")),
        (
            TopicIs("public", "default", "orders", topic("orders").topic_id, 0),
            TopicIs("public", "default", "orders", topic("orders").topic_id, 1),
        ),
        (
            TopicIs("public", "default", "orders", topic("orders").topic_id, 0),
            TopicIs("public", "default", "orders", bytes(16), 0),
        ),
        (PartitionExists(1), PartitionExists(2)),
        (SegmentExists(1), SegmentExists(2)),
        (SettingIs("a", "1"), SettingIs("a", "2")),
        (SettingIs("b", None), SettingIs("a", None)),
        (FlushedThroughIs(5), FlushedThroughIs(4)),
    ],
)
def test_preconditions_decide(meta: Meta, holds: Precondition, fails: Precondition):
    commit(
        meta,
        PutTopic(topic("orders", 1)),
        PutSegment(segment(1)),
        PutSetting("a", "1"),
        SetFlushedThrough(5),
    )

    with pytest.raises(PreconditionFailed):
        commit(meta, PutSetting("c", "1"), preconditions=[holds, fails])
    assert "c" not in meta.state.settings

    commit(meta, PutSetting("c", "2"), preconditions=[holds])
    assert meta.state.settings["c"] == "2"


def test_a_fence_lets_only_the_present_epoch_commit(meta: Meta):
    node, epoch = meta.state.node_id, meta.state.node_epoch

    for other in (Fence(node, epoch - 1), Fence(node, epoch + 1), Fence(node + 1, epoch)):
        with pytest.raises(Fenced):
            commit(meta, PutSetting("a", "1"), fence=other)

    commit(meta, PutSetting("a", "2"), fence=Fence(node, epoch))
    assert meta.state.settings == {"a": "2"}


def test_a_node_gives_its_own_slots_to_nodes_that_are_known(meta: Meta):
    commit(meta, AssignSlots((1, 1, 2)), BeginEpoch(2))
    before = dict(meta.state.slots)

    for wrong in ({2: 1}, {3: 2}, {0: 9}, {0: 2, 2: 2}):
        with pytest.raises(InvalidChange):
            commit(meta, GiveSlots(wrong))
    assert meta.state.slots == before

    commit(meta, GiveSlots({1: 2}))
    assert [meta.state.slots[slot].node_id for slot in range(3)] == [1, 2, 2]
    assert meta.state.slots[1].epoch == before[1].epoch + 1
    assert meta.state.slots[0] == before[0]


def test_commits_that_wait_together_have_their_own_fates(meta: Meta):
    async def together() -> list[ChangeResult | BaseException]:
        good = [meta.write([PutSetting("n", str(n))]) for n in range(5)]
        bad = [
            meta.write([PutSetting("n", "x")], [TopicIs("a", "b", "c", bytes(16), 1)]),
            meta.write([DeleteSegment(99)]),
        ]
        first, *rest = good
        return await asyncio.gather(first, *bad, *rest, return_exceptions=True)

    results = asyncio.run(together())

    assert isinstance(results[1], PreconditionFailed)
    assert isinstance(results[2], InvalidChange)
    versions = [each.version for each in results if isinstance(each, ChangeResult)]
    assert versions == list(range(versions[0], versions[0] + 5))
    assert meta.state.settings == {"n": "4"}


def test_the_state_has_moved_when_a_commit_returns(meta: Meta):
    async def follow() -> list[str]:
        seen = []
        for n in range(10):
            result = await meta.write([PutSetting("n", str(n))])
            assert meta.state.version == result.version
            seen.append(meta.state.settings["n"])
        return seen

    assert asyncio.run(follow()) == [str(n) for n in range(10)]


def test_a_cancelled_caller_does_not_stop_the_commit(meta: Meta):
    async def cancel() -> None:
        task = asyncio.ensure_future(meta.write([PutSetting("a", "1")]))
        await run_ready_tasks()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await meta.write([PutSetting("b", "2")])

    asyncio.run(cancel())

    assert meta.state.settings == {"a": "1", "b": "2"}


# ── what cannot be ────────────────────────────────────────────────────────────────────────────

IMPOSSIBLE = {
    "unknown operation": object(),
    "operation class": PutTopic,
    "no name": PutTopic(topic("", 1)),
    "short topic id": PutTopic(topic("x", 1, topic_id=b"x")),
    "no partition": PutTopic(topic("x")),
    "repeated partition": PutTopic(topic("x", 1, 1)),
    "partition id never allocated": PutTopic(topic("x", 10**12)),
    "partition id 0": PutTopic(topic("x", 0)),
    "partition of another topic": PutTopic(topic("x", 3)),
    "topic id of another topic": PutTopic(topic("x", 1, topic_id=topic("taken").topic_id)),
    "another topic under the name": PutTopic(topic("taken", 3, topic_id=bytes(16))),
    "unpartitioned with two": PutTopic(topic("x", 1, 2, partitioned=False)),
    "surrogate in a name": PutTopic(topic("\ud800", 1, topic_id=bytes(16))),
    "surrogate in a setting": PutTopic(topic("x", 1, settings={"a": "\ud800"})),
    "number as a setting": PutTopic(topic("x", 1, settings={"a": 1})),
    "huge number": PutTopic(topic("x", 1, epoch=INT_MAX + 1)),
    "negative number": PutTopic(topic("x", 1, created_ms=-1)),
    "no topic row": PutTopic(None),
    "missing topic": DeleteTopic("a", "b", "c"),
    "existing segment with other bytes": PutSegment(segment(1, 3, size=1001)),
    "existing segment with more partitions": PutSegment(segment(1, 3, 4)),
    "existing segment with fewer, none hidden": PutSegment(segment(1)),
    "segment id never allocated": PutSegment(segment(10**9)),
    "huge segment": PutSegment(segment(2, size=1 << 64)),
    "extents that are not packed": PutSegment(segment(2, partitions=dict[int, object]())),
    "no extents": PutSegment(segment(2, partitions=None)),
    "hidden partition that is no number": PutSegment(segment(2, hidden=("a",))),
    "store that is no text": PutSegment(segment(2, store="\ud800")),
    "missing segment": DeleteSegment(5),
    "huge offset": PutPartitionState(3, 1 << 63),
    "compaction going nowhere": PutPartitionState(3, compacted_end=-1),
    "open transaction at no offset": PutPartitionState(3, open_transactions=((1, -1),)),
    "float offset": PutPartitionState(3, flushed_end=1.0),
    "text as snapshot": PutSnapshot("a", b"b"),
    "large snapshot": PutSnapshot(b"a", bytes(VALUE_SIZE_MAX)),
    "text as snapshot key": DeleteSnapshot("a"),
    "flush going back": SetFlushedThrough(4),
    "flush at no number": SetFlushedThrough(None),
    "no ids": AllocateIds("x", 0),
    "negative ids": AllocateIds("x", -1),
    "too many ids": AllocateIds("x", INT_MAX),
    "kind that is no text": AllocateIds([], 1),
    "surrogate setting": PutSetting("\udfff", ""),
    "bytes as a setting": PutSetting("a", b"1"),
    "bytes as a setting's key": DeleteSetting(b"a"),
}


@pytest.fixture(scope="module", params=[*STORES, POSTGRES])
def taken(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Meta]:
    """A store for all invalid writes, of which none may change anything."""
    if request.param == POSTGRES:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        store = postgres(server.new_database())
    else:
        store = request.param(tmp_path_factory.mktemp("taken"))
    commit(store, PutTopic(topic("taken", 3)), PutSegment(segment(1, 3)), SetFlushedThrough(5))
    yield store
    store.close()


@pytest.mark.parametrize("op", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_invalid_write_is_refused_and_others_are_committed(taken: Meta, op: Op):
    meta = taken
    before = dict(meta.state.topics), dict(meta.state.segments)

    async def both() -> list[object]:
        good = [meta.write([PutSetting("good", str(n))]) for n in range(2)]
        bad = meta.write([PutSetting("bad", "1"), op])
        return await asyncio.gather(good[0], bad, good[1], return_exceptions=True)

    first, refused, second = asyncio.run(both())

    assert isinstance(refused, InvalidChange)
    assert isinstance(first, ChangeResult)
    assert isinstance(second, ChangeResult)
    assert meta.state.settings == {"good": "1"}
    assert (meta.state.topics, meta.state.segments) == before


def test_unknown_preconditions_are_refused(meta: Meta):
    with pytest.raises(InvalidChange, match="unknown precondition"):
        commit(meta, PutSetting("a", "1"), preconditions=["a > 0"])  # type: ignore[list-item]


def test_a_commit_has_a_limit(meta: Meta):
    with pytest.raises(InvalidChange, match="operations"):
        commit(meta, *[DeleteSetting("x")] * (OPS_MAX + 1))


def test_every_operation_has_a_rule():
    assert set(RULES) == set(Op.__args__)


def test_nothing_is_committed_after_closing(meta: Meta):
    meta.close()

    with pytest.raises(StorageFailed):
        commit(meta, PutSetting("a", "1"))


# ── ids ───────────────────────────────────────────────────────────────────────────────────────


def test_ids_come_one_after_the_other_and_never_twice(meta: Meta):
    async def take() -> list[int]:
        taken = []
        for _ in range(300):  # several blocks
            await meta.reserve("segment", 1)
            taken.append(meta.allocate("segment"))
        return taken

    taken = asyncio.run(take())

    assert taken == sorted(set(taken))
    assert min(taken) > 0
    assert meta.state.next_ids["segment"] > max(taken)


def test_many_ids_are_reserved_at_once(meta: Meta):
    async def take() -> set[int]:
        await meta.reserve("partition", 25_000)
        return {meta.allocate("partition") for _ in range(25_000)}

    assert len(asyncio.run(take())) == 25_000


def test_an_unknown_kind_has_no_ids_until_some_are_reserved(meta: Meta):
    with pytest.raises(NoIdsLeft):
        meta.allocate("spoon")

    asyncio.run(meta.reserve("spoon", 2))

    assert [meta.allocate("spoon"), meta.allocate("spoon")] == [1, 2]


# ── the manifest ──────────────────────────────────────────────────────────────────────────────


def test_manifest_contains_topics_partitions_and_segments(meta: Meta):
    row = topic("orders", 1, 2)
    ops = (PutTopic(row), PutPartitionState(1, 3, 9), PutSegment(segment(1, 1)))

    result = commit(meta, *ops, SetFlushedThrough(7))

    manifest = meta.manifest()
    assert manifest.cluster_id == CLUSTER
    assert manifest.generation == result.version
    assert manifest.flushed_through == 7
    assert manifest.topics == (ManifestTopic(*row.key, row.topic_id, (1, 2)),)
    assert manifest.partitions == {1: PartitionRange(3, 9, 9), 2: PartitionRange(0, 0, 0)}
    assert manifest.segments == (segment(1, 1),)


# ── any commits at all ────────────────────────────────────────────────────────────────────────

names = st.sampled_from(["a", "b", "c"])
texts = st.text(st.characters(exclude_characters="\0"), max_size=2)  # NUL: not in PostgreSQL
ids = st.integers(0, 4)
ops = st.one_of(
    st.builds(
        lambda name, parts, topic_id, epoch: PutTopic(
            topic(name, *parts, topic_id=bytes([topic_id]) * 16, epoch=epoch)
        ),
        names,
        st.lists(ids, max_size=3),
        ids,
        ids,
    ),
    st.builds(DeleteTopic, st.just("public"), st.just("default"), names),
    st.builds(lambda each, parts: PutSegment(segment(each, *parts)), ids, st.sets(ids)),
    st.builds(DeleteSegment, ids),
    st.builds(PutPartitionState, ids, st.none() | ids, st.none() | ids),
    st.builds(PutSnapshot, st.binary(max_size=1), st.binary(max_size=3)),
    st.builds(DeleteSnapshot, st.binary(max_size=1)),
    st.builds(SetFlushedThrough, ids),
    st.builds(AllocateIds, names, ids),
    st.builds(PutSetting, names, texts),
    st.builds(DeleteSetting, names),
)
checks = st.one_of(
    st.builds(TopicAbsent, st.just("public"), st.just("default"), names),
    st.builds(PartitionExists, ids),
    st.builds(FlushedThroughIs, ids),
    st.builds(SettingIs, names, st.none() | st.text(max_size=1)),
)
commits = st.lists(st.tuples(st.lists(ops, max_size=4), st.lists(checks, max_size=1)), max_size=12)
no_empty_commits = commits.map(lambda drawn: [each for each in drawn if each[0]])
"""Where several nodes share a store, a change of nothing only waits for those of others."""


@settings(deadline=None, max_examples=60)
@given(commits)
def test_sqlite_does_what_memory_does(tmp_path_factory: pytest.TempPathFactory, commits: list):
    directory = tmp_path_factory.mktemp("meta")
    stores = [memory(directory), sqlite(directory)]

    assert_same(stores, commits)

    again = SqliteMeta.open(directory / "meta.sqlite")
    again.close()
    assert_same_rows(again, stores[0])


@settings(deadline=None, max_examples=20)
@given(no_empty_commits)
def test_postgres_does_what_memory_does(postgres_server: PostgresServer, commits: list):
    url = postgres_server.emptied_database()
    reference = MemoryMeta(CLUSTER)

    assert_same([reference, postgres(url)], commits)

    again = postgres(url)
    again.close()
    assert_same_rows(again, reference)


def assert_same(stores: list[Meta], commits: list) -> None:
    """All stores give the same answers to the changes, and have the same state; closes them."""

    async def run(meta: Meta) -> list[object]:
        waiting = [meta.write(ops, checks) for ops, checks in commits]
        found = await asyncio.gather(*waiting, return_exceptions=True)
        return [repr(each) for each in found]

    first, second = (asyncio.run(run(meta)) for meta in stores)
    snapshots = [list(meta.snapshots()) for meta in stores]
    for meta in stores:
        meta.close()

    assert first == second
    assert snapshots[0] == snapshots[1]
    assert stores[0].state == stores[1].state


def assert_same_rows(again: Meta, reference: Meta) -> None:
    for table in ("topics", "topic_keys", "partitions", "segments", "settings"):
        assert getattr(again.state, table) == getattr(reference.state, table)
    assert again.state.flushed_through == reference.state.flushed_through
