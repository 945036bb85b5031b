from __future__ import annotations

import gc

from trilogue.log.tail.chunks import (
    POOL_BYTES,
    POOLED_FROM,
    SLAB_BYTES,
    SLAB_FROM,
    TRIM_BYTES,
    Budget,
)


def make() -> Budget:
    return Budget(1 << 30, lambda: None)


def test_memory_counts_until_its_last_view_is_gone() -> None:
    for size in (512, 5000, POOLED_FROM, 2_000_000):
        budget = make()
        chunk = budget.chunk(size)
        assert len(chunk) >= size
        assert budget.used == len(chunk)
        part = chunk[10:20]

        del chunk
        gc.collect()
        assert budget.used >= size, "a view is left"
        del part
        assert budget.used == 0


def test_large_chunks_are_used_again_only_without_views() -> None:
    budget = make()
    first = budget.chunk(100_000)
    first[:5] = b"first"
    held = first[:5]
    del first

    second = budget.chunk(100_000)
    second[:5] = b"again"
    assert bytes(held) == b"first"

    del held
    assert budget.pooled == len(second)
    third = budget.chunk(100_000)
    assert bytes(third[:5]) == b"first", "the same memory"
    assert budget.pooled == 0


def test_sizes_are_rounded_to_few_and_by_little() -> None:
    sizes = {len(make().chunk(size)) for size in range(POOLED_FROM, 1 << 20, 997)}

    assert len(sizes) < 50
    for size in range(POOLED_FROM, 1 << 20, 997):
        assert size <= len(make().chunk(size)) <= size * 1.13


def test_the_pool_is_bounded_and_given_back_when_it_is_not_used() -> None:
    budget = make()
    chunks = [budget.chunk(1 << 20) for _ in range(2 * POOL_BYTES >> 20)]
    chunks.clear()
    assert budget.pooled == POOL_BYTES

    budget.trim()  # it was used since the last call
    assert budget.pooled == POOL_BYTES
    budget.trim()
    assert budget.pooled == POOL_BYTES - TRIM_BYTES
    for _ in range(POOL_BYTES // TRIM_BYTES):
        budget.trim()
    assert budget.pooled == 0
    assert budget.used == 0


def test_the_release_callback_runs_when_memory_is_freed() -> None:
    reported: list[int] = []
    budget = Budget(1 << 30, lambda: reported.append(budget.used))
    chunks = [budget.chunk(512), budget.chunk(100_000)]

    del chunks[0]
    chunks.clear()

    assert len(reported) == 2
    assert reported[-1] == 0


def test_pieces_of_a_slab_do_not_overlap_and_it_counts_whole_until_the_last_is_gone() -> None:
    budget = make()
    pieces = [budget.chunk(SLAB_FROM) for _ in range(SLAB_BYTES // SLAB_FROM)]
    assert budget.used == SLAB_BYTES
    for number, piece in enumerate(pieces):
        piece[:] = bytes([number]) * len(piece)
    assert [bytes(piece) for piece in pieces] == [
        bytes([number]) * SLAB_FROM for number in range(len(pieces))
    ]

    held = pieces[3][5:6]
    pieces.clear()
    del piece
    assert budget.used == SLAB_BYTES
    after = budget.chunk(SLAB_FROM)
    after[:] = b"x" * len(after)
    assert bytes(held) == b"\x03"
    del held, after
    assert budget.used == 0


def test_a_slab_is_used_again_from_its_beginning_when_no_view_of_it_is_left() -> None:
    budget = make()
    for number in range(3 * SLAB_BYTES // SLAB_FROM):
        piece = budget.chunk(SLAB_FROM)
        assert budget.used == SLAB_BYTES
        piece[:1] = bytes([number])
        del piece
        assert budget.used == 0
    assert budget.pooled == 0, "it was one all the time"


def test_a_small_limit_is_not_taken_up_by_one_slab() -> None:
    budget = Budget(2 * SLAB_BYTES, lambda: None)

    piece = budget.chunk(SLAB_FROM)

    assert budget.used == len(piece) == SLAB_FROM
