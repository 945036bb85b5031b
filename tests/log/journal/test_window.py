from __future__ import annotations

import pytest

from tests.log.rig import make_entry
from tests.pure import load_pure
from trilogue.entry.header import CHECKED_FROM
from trilogue.log.files import BLOCK
from trilogue.log.journal import window as installed
from trilogue.log.journal.frame import (
    PREFIX,
    FileHeader,
    encode_frame_header,
    entry_checksum,
    frame_at,
)
from trilogue.log.journal.window import Window

SEED = FileHeader(1, 77, b"a cluster's id 1").seed


def filled(sizes: list[int], *, facts: bool, known: bool) -> Window:
    window = Window(1 << 20)
    for size in sizes:
        start = window.used + PREFIX.size
        PREFIX.pack_into(window.view, window.used, 7, 1, 0)
        window.view[start : start + size] = make_entry(size, fill=size)
        window.used = start + size
        window.entry_count += 1
        if known:
            checksum = entry_checksum(window.view, start)
            window.known.append((start + CHECKED_FROM, start + size, checksum))
    if facts:
        window.facts.append((1, b"moved"))
        window.limit -= 100
    window.close()
    return window


def sealed(window: Window) -> bytes:
    frame = window.seal(
        seed=SEED, flags=0, sequence=5, durable_through=4, node_id=1, node_epoch=2, append_time_ms=3
    )
    return bytes(frame)


@pytest.mark.parametrize("facts", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_a_frame_summed_up_early_is_the_same_frame(facts: bool, known: bool) -> None:
    sizes = [100, 40_000, 61, 70_000]
    early = filled(sizes, facts=facts, known=known)
    early.compute_checksum()

    frame = sealed(early)

    assert frame == sealed(filled(sizes, facts=facts, known=False))
    assert len(frame) % BLOCK == 0
    assert frame_at(memoryview(frame), 0, SEED) is not None


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(
    "module",
    [installed, load_pure("trilogue.log.journal.window")],
    ids=["installed", "uncompiled"],
)
def test_a_window_writes_the_header_of_the_format(module, known: bool) -> None:
    window = module.Window(1 << 20)
    window.add_entry(7, 1, memoryview(make_entry(40_000 if known else 100)))
    window.facts.append((1, b"moved"))
    window.close()
    fields = {
        "seed": 2**32 - 5, "flags": 3, "sequence": 2**40 + 1, "durable_through": 2**40,
        "node_id": 2**31 - 1, "node_epoch": 2**31 - 2, "append_time_ms": 1_700_000_000_000,
    }  # fmt: skip

    frame = window.seal(**fields)

    again = memoryview(bytearray(frame))
    end = window.used + 8 + len(b"moved")
    encode_frame_header(again[:end], entry_count=1, fact_count=1, facts_at=window.used, **fields)
    assert bytes(frame) == bytes(again)
    assert frame_at(frame, 0, fields["seed"]).length == end
