from __future__ import annotations

import pytest

from tests.broker.fakes import FakeLog
from trilogue.broker.cursors.committed_offsets import (
    MOVES_IN_FACT,
    REMOVALS_IN_FACT,
    CommittedOffsets,
    OffsetLimits,
    find_refusal,
)
from trilogue.broker.cursors.position import CommittedOffset
from trilogue.broker.errors import (
    DiskFull,
    InvalidGroupName,
    MetadataTooLarge,
    StorageFailed,
    TooManyPositions,
)
from trilogue.broker.facts import (
    CursorMove,
    CursorMoves,
    Protocol,
    SnapshotRow,
    cursor_key,
    decode_moves,
    encode_moves,
)
from trilogue.log import errors as log_errors
from trilogue.log.journal.frame import MAX_FACT

KAFKA = Protocol.KAFKA


class Room:
    """CommittedOffsets over a log that the test makes durable; partitions 1 to 999 exist."""

    def __init__(self, limits: OffsetLimits | None = None) -> None:
        self.log = FakeLog()
        self.partitions = set(range(1, 1_000))
        self.offsets = CommittedOffsets(self.partitions.__contains__, limits)
        self.offsets.attach(self.log)

    def commit(self, *moves: CursorMove, name: str = "g", protocol: Protocol = KAFKA, at: int = 5):
        return self.offsets.commit(protocol, name, moves, at)

    def remove(self, *partition_ids: int, name: str = "g"):
        return self.offsets.remove(KAFKA, name, partition_ids or None)

    def offset(self, partition_id: int, name: str = "g") -> int | None:
        position = self.offsets.position(KAFKA, name, partition_id)
        return None if position is None else position.mark


def test_a_position_is_seen_and_answered_only_when_it_is_durable():
    room = Room()

    promise = room.commit(CursorMove(1, 10, 3, "note"))
    before = (promise.done, room.offset(1))
    room.log.commit()

    assert before == (False, None)
    assert promise.result() is None
    assert room.offsets.position(KAFKA, "g", 1) == CommittedOffset(10, 3, "note", 5)


def test_moves_take_effect_in_the_order_of_the_journal():
    room = Room()
    room.commit(CursorMove(1, 10))
    room.commit(CursorMove(1, 4), CursorMove(2, 7))

    room.log.commit(waiters=1)
    first = room.offset(1), room.offset(2)
    room.log.commit()

    assert first == (10, None)
    assert (room.offset(1), room.offset(2)) == (4, 7)


def test_a_failed_disk_moves_nothing():
    room = Room()
    promise = room.commit(CursorMove(1, 10))

    room.log.commit(log_errors.StorageFailed("broken"))

    assert isinstance(promise.error, StorageFailed)
    assert room.offset(1) is None


@pytest.mark.parametrize(
    ("refused", "meant"),
    [
        (log_errors.StorageFailed("broken"), StorageFailed),
        (log_errors.TailFull("full"), DiskFull),
    ],
)
def test_a_log_that_refuses_is_heard_at_once(refused, meant):
    room = Room()
    room.log.refusal = refused

    with pytest.raises(meant):
        room.commit(CursorMove(1, 10))


def test_a_commit_of_nothing_is_done():
    assert Room().commit().done


def test_names_and_protocols_do_not_share_positions():
    room = Room()
    room.commit(CursorMove(1, 10))
    room.commit(CursorMove(1, 20), name="h")
    room.commit(CursorMove(1, 30), protocol=Protocol.PULSAR)
    room.log.commit()

    assert (room.offset(1), room.offset(1, "h"), room.offset(1, "i")) == (10, 20, None)
    assert dict(room.offsets.positions(Protocol.PULSAR, "g")) == {1: CommittedOffset(30, -1, "", 5)}
    assert sorted(room.offsets.names(KAFKA)) == ["g", "h"]
    assert len(room.offsets) == 3


def test_a_long_commit_is_cut_into_facts_that_a_frame_takes_and_kept_when_all_are():
    room = Room()
    moves = [CursorMove(each, each, 0, "m" * 4_096) for each in range(1, 2 * MOVES_IN_FACT + 2)]

    promise = room.commit(*moves, name="n" * 1_024)
    assert len(room.log.facts) == 3
    assert max(len(payload) for _, payload in room.log.facts) < MAX_FACT
    room.log.commit(waiters=2)
    half = promise.done, len(room.offsets)
    room.log.commit()

    assert half == (False, 2 * MOVES_IN_FACT)
    assert promise.done
    assert len(room.offsets) == len(moves)


def test_a_flush_cut_inside_a_commit_finds_what_its_frames_held():
    """What the snapshot of a cut lacks no replay brings back: the frames before it are skipped."""
    room = Room()
    room.commit(*(CursorMove(each, each) for each in range(1, MOVES_IN_FACT + 2)))

    room.log.commit(waiters=1)
    rows = room.offsets.snapshot()

    assert len(rows) == MOVES_IN_FACT


REFUSED = [
    (CursorMove(1, 0, 0, "x" * 4_097), MetadataTooLarge),
    (CursorMove(1, 0, 0, "é" * 2_049), MetadataTooLarge),
]


@pytest.mark.parametrize(("move", "reason"), REFUSED)
def test_a_move_that_cannot_be_is_refused(move: CursorMove, reason):
    room = Room()

    assert type(find_refusal(room.offsets, move)) is reason
    with pytest.raises(reason):
        room.commit(CursorMove(2, 5), move)
    assert room.log.facts == []


@pytest.mark.parametrize("offset", [-1, -2])
def test_commit_without_offset_leaves_the_committed_offset(offset):
    """kafkajs does so to start over."""
    room = Room()
    room.commit(CursorMove(1, 5))
    room.log.commit(waiters=1)

    room.commit(CursorMove(1, offset))
    room.log.commit(waiters=1)

    assert room.offset(1) == offset


def test_a_move_with_the_longest_metadata_is_accepted():
    assert find_refusal(Room().offsets, CursorMove(1, 0, -1, "é" * 2_048)) is None


def test_a_name_has_a_limit():
    with pytest.raises(InvalidGroupName):
        Room().commit(CursorMove(1, 0), name="é" * 513)


def test_there_is_a_limit_to_all_positions():
    room = Room(OffsetLimits(count_max=2))
    room.commit(CursorMove(1, 0), CursorMove(2, 0))
    room.log.commit()

    with pytest.raises(TooManyPositions):
        room.commit(CursorMove(3, 0))


def test_positions_that_are_there_move_although_there_is_room_for_no_more():
    room = Room(OffsetLimits(count_max=2))
    room.commit(CursorMove(1, 0), CursorMove(2, 0))
    room.log.commit()

    room.commit(CursorMove(1, 5), CursorMove(2, 7))
    room.log.commit()

    assert (room.offset(1), room.offset(2)) == (5, 7)


LONG_TEXT = "x" * 1_000


def refuses(room: Room, move: CursorMove) -> bool:
    return isinstance(find_refusal(room.offsets, move), TooManyPositions)


@pytest.mark.parametrize("how", ["removed", "replaced", "deleted"])
def test_long_metadata_has_a_limit_of_all_positions(how):
    room = Room(OffsetLimits(text_bytes_max=2_000))
    room.commit(CursorMove(1, 0, -1, LONG_TEXT), CursorMove(2, 0, -1, "note" * 25))
    room.log.commit()
    assert not refuses(room, CursorMove(3, 0, -1, LONG_TEXT))
    room.commit(CursorMove(3, 0, -1, LONG_TEXT))
    room.log.commit()

    assert refuses(room, CursorMove(4, 0, -1, LONG_TEXT))
    assert refuses(room, CursorMove(3, 1, -1, "é" * 101))
    assert not refuses(room, CursorMove(4, 0, -1, "x" * 100)), "a short one"
    assert not refuses(room, CursorMove(1, 0))

    if how == "removed":
        room.remove(1)
    elif how == "replaced":
        room.commit(CursorMove(1, 1, -1, "short"))
    else:
        room.offsets.drop([1])
    room.log.commit()
    assert not refuses(room, CursorMove(4, 0, -1, LONG_TEXT))


def test_long_metadata_counts_after_a_start():
    first = Room()
    first.commit(CursorMove(1, 0, -1, LONG_TEXT))
    first.log.commit()
    room = Room(OffsetLimits(text_bytes_max=1_000))
    for row in first.offsets.snapshot():
        room.offsets.load(row.value)
    assert refuses(room, CursorMove(2, 0, -1, LONG_TEXT))


# -- deleted partitions


def test_positions_of_deleted_partitions_go_with_them():
    room = Room()
    room.commit(CursorMove(1, 10), CursorMove(2, 20))
    room.commit(CursorMove(1, 30), name="h")
    room.log.commit()
    room.offsets.snapshot()

    room.partitions.remove(1)
    room.offsets.drop([1])

    assert (room.offset(1), room.offset(2), room.offset(1, "h")) == (None, 20, None)
    assert len(room.offsets) == 1
    assert room.offsets.names(KAFKA) == ["g"]
    assert set(room.offsets.snapshot()) == {
        SnapshotRow(cursor_key(KAFKA, "g", 1), None),
        SnapshotRow(cursor_key(KAFKA, "h", 1), None),
    }


def test_a_move_that_was_on_its_way_when_the_partition_was_deleted_leaves_nothing():
    room = Room()
    promise = room.commit(CursorMove(1, 10))

    room.partitions.remove(1)
    room.offsets.drop([1])
    room.log.commit()

    assert promise.done
    assert room.offset(1) is None
    assert room.offsets.names(KAFKA) == []
    assert room.offsets.snapshot() == []


# -- snapshots and replay


def test_a_snapshot_has_what_changed_and_is_durable():
    room = Room()
    room.commit(CursorMove(1, 10, 2, "note"))
    undurable = room.offsets.snapshot()
    room.log.commit()
    room.commit(CursorMove(2, 20))

    rows = room.offsets.snapshot()

    assert undurable == []
    assert [row.key for row in rows] == [cursor_key(KAFKA, "g", 1)]
    assert decode_moves(rows[0].value) == CursorMoves(KAFKA, "g", 5, [CursorMove(1, 10, 2, "note")])
    assert room.offsets.snapshot() == []


def test_positions_come_back_from_the_snapshot_and_then_from_the_journal():
    room = Room()
    room.commit(CursorMove(1, 10), CursorMove(2, 20))
    room.log.commit()
    rows = room.offsets.snapshot()
    cut = len(room.log.durable_facts)
    room.commit(CursorMove(1, 11), CursorMove(3, 30))
    room.log.commit()

    back = Room()
    for row in rows:
        back.offsets.load(row.value)
    clean = back.offsets.snapshot()
    for kind, payload in room.log.durable_facts[cut:] * 2:
        back.offsets.replay(kind, payload)

    assert clean == []
    assert back.offsets.positions(KAFKA, "g") == room.offsets.positions(KAFKA, "g")
    assert len(back.offsets) == 3
    assert len(back.offsets.snapshot()) == 2


def test_a_row_of_a_partition_that_is_gone_is_removed_at_the_next_cut():
    room = Room()

    room.offsets.load(encode_moves(CursorMoves(KAFKA, "g", 5, [CursorMove(5_000, 1)])))

    assert len(room.offsets) == 0
    assert room.offsets.snapshot() == [SnapshotRow(cursor_key(KAFKA, "g", 5_000), None)]


# -- positions that are removed


def test_removed_positions_are_gone_when_that_is_durable():
    room = Room()
    room.commit(*(CursorMove(each, 10) for each in (1, 2, 3)))
    room.log.commit()

    promise = room.remove(1, 3, 9)
    before = promise.done, room.offset(1)
    room.log.commit()

    assert before == (False, 10)
    assert promise.result() is None
    assert [room.offset(each) for each in (1, 2, 3)] == [None, 10, None]
    assert len(room.offsets) == 1


def test_all_positions_of_a_name_go_also_those_under_way_and_those_that_come_later_stay():
    room = Room()
    room.commit(CursorMove(1, 10))
    room.commit(CursorMove(1, 10), name="h")
    room.remove()
    room.commit(CursorMove(2, 20))
    room.log.commit()

    assert dict(room.offsets.positions(KAFKA, "g")) == {2: CommittedOffset(20, -1, "", 5)}
    assert room.offset(1, "h") == 10
    assert len(room.offsets) == 2


def test_a_name_without_positions_is_no_name_any_more():
    room = Room()
    room.commit(CursorMove(1, 10))
    room.remove(1)
    room.log.commit()
    room.remove()
    room.log.commit()

    assert room.offsets.names(KAFKA) == []
    assert len(room.offsets) == 0


def test_a_failed_disk_removes_nothing():
    room = Room()
    room.commit(CursorMove(1, 10))
    room.log.commit()

    promise = room.remove()
    room.log.commit(log_errors.StorageFailed("broken"))

    assert isinstance(promise.error, StorageFailed)
    assert room.offset(1) == 10


def test_to_remove_from_no_partitions_is_done():
    room = Room()

    assert room.offsets.remove(KAFKA, "g", ()).done


def test_many_removals_are_cut_into_facts_that_a_frame_takes():
    room = Room()

    promise = room.offsets.remove(KAFKA, "n" * 1_024, range(2 * REMOVALS_IN_FACT + 1))
    room.log.commit(waiters=2)
    half = promise.done
    room.log.commit()

    assert len(room.log.facts) == 3
    assert max(len(payload) for _, payload in room.log.facts) < MAX_FACT
    assert (half, promise.done) == (False, True)


@pytest.mark.parametrize("everything", [True, False])
def test_replay_and_snapshot_restore_the_offsets_in_memory(everything: bool):
    room = Room()
    room.commit(*(CursorMove(each, 10) for each in (1, 2)))
    room.log.commit()
    rows = {row.key: row.value for row in room.offsets.snapshot()}
    room.remove(*(() if everything else (1,)))
    room.log.commit()

    replayed = CommittedOffsets(room.partitions.__contains__)
    for value in rows.values():
        assert value is not None
        replayed.load(value)
    replayed.replay(*room.log.facts[-1])

    left = {} if everything else {2: CommittedOffset(10, -1, "", 5)}
    assert replayed.positions(KAFKA, "g") == room.offsets.positions(KAFKA, "g") == left
    gone = [SnapshotRow(cursor_key(KAFKA, "g", each), None) for each in ({1, 2} - {*left})]
    assert sorted(room.offsets.snapshot()) == gone


def test_how_long_a_position_is_to_be_kept_is_kept_with_it():
    room = Room()
    room.offsets.commit(KAFKA, "g", [CursorMove(1, 10)], 5, retention_ms=7)
    room.log.commit()

    (row,) = room.offsets.snapshot()
    assert row.value is not None
    loaded = CommittedOffsets(room.partitions.__contains__)
    loaded.load(row.value)

    assert loaded.position(KAFKA, "g", 1) == CommittedOffset(10, -1, "", 5, 7)
