"""Compaction of a partition that clients of two protocols write to."""

from __future__ import annotations

from tests.entry.converted import message, metadata, stored
from tests.log.jobs.compacted import World
from trilogue.entry.conversion.convert import read_messages
from trilogue.entry.pulsar.pulsar_batch import build_batch, build_single
from trilogue.entry.walk import read_header


def delivered_messages(world: World) -> list[tuple[int, bytes | None, bytes | None]]:
    """What a reader of either protocol finds."""
    found = []
    for entry in world.entries():
        messages, _ = read_messages(entry, read_header(entry))
        found += [(offset, each.key, each.value) for offset, each in messages]
    return found


def pulsar(*pairs: tuple[str | None, bytes | None]) -> bytes:
    messages = [message(value, partition_key=key) for key, value in pairs]
    return stored(build_batch(messages, metadata()))[0]


def test_a_key_is_one_key_for_all_writers():
    world = World()
    world.append((b"a", b"kafka"), (b"b", b"kafka"))
    world.append_entry(pulsar(("a", b"pulsar"), ("c", b"old"), ("c", b"new")))
    world.append((b"c", b"kafka again"))
    world.append_entry(stored(build_single(message(b"alone", partition_key="b"), metadata()))[0])
    world.flush()

    world.compact()

    assert delivered_messages(world) == [
        (2, b"a", b"pulsar"),
        (5, b"c", b"kafka again"),
        (6, b"b", b"alone"),
    ]
    assert [(e.base_offset, e.span) for e in world.headers()] == [(2, 3), (5, 1), (6, 1)]


def test_pulsars_messages_without_a_key_stay():
    world = World()
    world.append_entry(pulsar((None, b"x"), ("a", b"old")))
    world.append_entry(pulsar(("a", b"new")))
    world.flush()

    world.compact()

    assert delivered_messages(world) == [(0, None, b"x"), (2, b"a", b"new")]


def test_pulsars_tombstones_go_when_their_time_has_come():
    world = World(delete_retention_ms=0)
    world.append_entry(pulsar(("a", b"old"), ("b", b"stays")))
    world.append_entry(pulsar(("a", b"")))
    world.append((b"z", b"1"))
    world.flush()
    world.compact()
    world.append((b"y", b"1"))
    world.flush()
    world.now_ms += 86_400_000

    world.compact()

    assert delivered_messages(world) == [(1, b"b", b"stays"), (3, b"z", b"1"), (4, b"y", b"1")]
