"""Compaction of a partition that TubeMQ's clients wrote to."""

from __future__ import annotations

from tests.entry.converted import tube_entry
from tests.log.jobs.compacted import World
from trilogue.entry.entry import Format


def kept(world: World) -> list[tuple[int, Format, int]]:
    return [(each.base_offset, each.format, each.record_count) for each in world.headers()]


def test_tubemq_messages_stay_in_a_compacted_topic():
    world = World()
    world.append((b"a", b"old"))
    world.append_entry(tube_entry(b"one", "x=1")[0])
    world.append_entry(tube_entry(b"two")[0])
    world.append((b"a", b"new"))
    world.flush()

    world.compact()

    assert kept(world) == [(1, Format.TUBEMQ, 1), (2, Format.TUBEMQ, 1), (3, Format.KAFKA, 1)]
    assert world.entries()[:2] == [each.entry for each in world.written[1:3]]


def test_tombstones_go_also_behind_what_tubemq_wrote():
    world = World(delete_retention_ms=0)
    world.append_entry(tube_entry(b"one", "x=1")[0])
    world.append((b"a", None))
    world.append((b"b", b"1"))
    world.flush()

    world.compact_and_once_more_a_day_later((b"c", b"1"))

    assert [each.key for each in world.committed() if each.key is not None] == [b"b", b"c"]


def test_tombstones_stay_behind_a_message_that_names_a_key():
    """It stays, for TubeMQ knows no keys; without the tombstone its key would be back."""
    world = World(delete_retention_ms=0)
    world.append_entry(tube_entry(b"one", "trilogue.key=a")[0])
    world.append((b"a", None))
    world.append((b"b", b"1"))
    world.flush()

    world.compact_and_once_more_a_day_later((b"c", b"1"))

    assert [each[0] for each in kept(world)] == [0, 1, 2, 3]
