from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.rig import CLUSTER, make_entry
from trilogue.log.errors import CorruptLog, FrameTooLarge, NewerFormat
from trilogue.log.files import BLOCK
from trilogue.log.journal.frame import (
    CLEAN,
    FACT,
    FRAME_HEADER,
    LOST,
    MAX_FRAME,
    PREFIX,
    FileHeader,
    Frame,
    decode_file_header,
    encode_file_header,
    encode_frame_header,
    file_name,
    file_number,
    frame_at,
    iter_entries,
    iter_facts,
    iter_frames,
    lost_frame,
    padded,
    sequence_at,
)

VECTORS = Path(__file__).parents[2] / "vectors" / "log"
HEADER = FileHeader(7, 0x0123456789ABCDEF, CLUSTER)


def make_frame(
    sequence: int,
    entries: list[tuple[int, bytes]] = (),  # type: ignore[assignment]
    facts: list[tuple[int, bytes]] = (),  # type: ignore[assignment]
    *,
    header: FileHeader = HEADER,
    flags: int = 0,
    entry_count: int | None = None,
    fact_count: int | None = None,
) -> bytes:
    body = b"".join(PREFIX.pack(number, 3, 0) + entry for number, entry in entries)
    facts_at = FRAME_HEADER + len(body)
    body += b"".join(FACT.pack(kind, 0, len(data)) + data for kind, data in facts)
    frame = memoryview(bytearray(bytes(FRAME_HEADER) + body))
    encode_frame_header(
        frame,
        seed=header.seed,
        flags=flags,
        sequence=sequence,
        durable_through=sequence - 1,
        node_id=1,
        node_epoch=2,
        append_time_ms=1_700_000_000_000,
        entry_count=len(entries) if entry_count is None else entry_count,
        fact_count=len(facts) if fact_count is None else fact_count,
        facts_at=facts_at,
    )
    return bytes(frame) + bytes(padded(len(frame)) - len(frame))


def make_file(*frames: bytes, header: FileHeader = HEADER) -> memoryview:
    return memoryview(bytes(encode_file_header(header)) + b"".join(frames))


def sequences(data: memoryview, header: FileHeader = HEADER) -> list[int]:
    return [frame.sequence for frame in iter_frames(data, header)]


def test_the_layout_on_disk_is_the_documented_one() -> None:
    """docs/reference/file-formats.md; a change here is a new format version."""
    entries = [
        (1, bytes(make_entry(61))),
        (2**40, bytes(make_entry(70, span=3, time_ms=5, fill=0x41))),
    ]
    data = make_file(
        make_frame(1, entries, [(2, b"fact")]),
        lost_frame(HEADER.seed, sequence=5, append_time_ms=1_700_000_000_000),
        make_frame(6, flags=CLEAN),
    )
    blocks = (VECTORS / "journal-v1.hex").read_text().split("\n\n")

    golden = b"".join(bytes.fromhex(block).ljust(BLOCK, b"\0") for block in blocks)

    assert bytes(data) == golden
    block, frame = golden[:BLOCK], golden[BLOCK : 2 * BLOCK]
    assert block[:8] == b"TRILJRNL"
    assert block[12:16].hex() == "00000001"
    assert block[16:24].hex() == "0000000000000007"
    assert block[24:32].hex() == "0123456789abcdef"
    assert block[32:48] == CLUSTER
    assert frame[:4] == b"TRLF"
    assert frame[8:64].hex() == (
        "01000000"  # version, flags
        "000000ef"  # length
        "0000000000000001" "0000000000000000"  # sequence, durable through
        "00000001" "00000002"  # node id, node epoch
        "0000018bcfe56800"  # append time
        "00000002" "00000001"  # entries, facts
        "000000e3" "00000000"  # facts begin
    )  # fmt: skip
    assert frame[64:80].hex() == "00000000000000010000000300000000"
    assert frame[0xE3 : 0xE3 + 12].hex() == "0002000000000004" + b"fact".hex()


def test_a_journal_of_format_1_can_be_read() -> None:
    blocks = (VECTORS / "journal-v1.hex").read_text().split("\n\n")
    data = memoryview(b"".join(bytes.fromhex(block).ljust(BLOCK, b"\0") for block in blocks))
    header = decode_file_header(data)

    assert header == HEADER
    frames = list(iter_frames(data, HEADER))
    assert [(frame.sequence, frame.flags) for frame in frames] == [(1, 0), (5, LOST), (6, CLEAN)]
    assert [number for number, *_ in iter_entries(data, frames[0])] == [1, 2**40]
    assert [(kind, bytes(fact)) for kind, fact in iter_facts(data, frames[0])] == [(2, b"fact")]


def test_a_frame_returns_what_was_put_into_it() -> None:
    entries = [(1, bytes(make_entry(100))), (2**63 - 1, bytes(make_entry(5000, span=3)))]
    facts = [(1, b""), (65535, b"x" * 1000)]
    data = make_file(make_frame(1, entries, facts))

    (frame,) = iter_frames(data, HEADER)

    found = [
        (number, bytes(data[at : at + size])) for number, _, at, size in iter_entries(data, frame)
    ]
    assert entries == found
    assert [epoch for _, epoch, _, _ in iter_entries(data, frame)] == [3, 3]
    assert facts == [(kind, bytes(payload)) for kind, payload in iter_facts(data, frame)]
    assert (
        frame.sequence,
        frame.durable_through,
        frame.node_id,
        frame.node_epoch,
    ) == (1, 0, 1, 2)
    assert frame.end == BLOCK + padded(frame.length)


@given(st.lists(st.integers(61, 9000), max_size=5), st.lists(st.binary(max_size=50), max_size=5))
def test_frames_follow_each_other_whatever_their_sizes(
    sizes: list[int], facts: list[bytes]
) -> None:
    frames = [
        make_frame(10 + at, [(1, bytes(make_entry(size)))], [(1, fact) for fact in facts])
        for at, size in enumerate(sizes)
    ]

    assert list(range(10, 10 + len(sizes))) == sequences(make_file(*frames))


def test_a_frame_torn_at_any_sector_is_no_frame() -> None:
    """Every 512 bytes: what came first is there, the rest is zeros or what was there before."""
    first = make_frame(1, [(1, bytes(make_entry(100)))])
    torn = make_frame(2, [(1, bytes(make_entry(9000, fill=7)))])
    old = make_frame(99, [(1, bytes(make_entry(9000, fill=8)))], header=HEADER._replace(number=1))

    for before in (bytes(len(torn)), old, b"\xff" * len(torn)):
        for cut in range(0, 9000, 512):
            assert sequences(make_file(first, torn[:cut] + before[cut:])) == [1]
            if cut:
                assert sequences(make_file(first, before[:cut] + torn[cut:])) == [1]
                assert sequences(make_file(first, torn[:cut])) == [1], "cut there"
    assert sequences(make_file(first, torn)) == [1, 2]


@given(st.integers(0, 8 * 5000 - 1))
def test_any_flipped_bit_is_noticed(bit: int) -> None:
    frame = bytearray(make_frame(1, [(1, bytes(make_entry(4900)))], [(1, b"fact")]))
    length = int.from_bytes(frame[12:16], "big")
    frame[bit // 8] ^= 1 << bit % 8

    assert ([1] if bit // 8 >= length else []) == sequences(make_file(bytes(frame)))


def test_a_frame_of_the_files_earlier_life_is_never_valid() -> None:
    """Same file, same place, even the sequence fits: the incarnation is another one."""
    earlier = FileHeader(3, 42, CLUSTER)
    left = make_frame(2, [(1, bytes(make_entry(100)))], header=earlier)

    data = make_file(make_frame(1), left)

    assert sequences(data) == [1]
    assert sequence_at(data, 2 * BLOCK) == 2
    assert frame_at(data, 2 * BLOCK, earlier.seed) is not None


def test_a_frame_out_of_sequence_ends_the_walk() -> None:
    assert sequences(make_file(make_frame(1), make_frame(3))) == [1]
    assert sequences(make_file(make_frame(5), make_frame(5))) == [5]


def test_salvaged_lost_frame_allows_a_sequence_gap() -> None:
    lost = lost_frame(HEADER.seed, sequence=6, append_time_ms=1)

    assert sequences(make_file(make_frame(2), lost, make_frame(7))) == [2, 6, 7]
    assert next(iter_frames(make_file(lost), HEADER)).flags == LOST


@pytest.mark.parametrize("length", [0, 63, MAX_FRAME + 1, 2**32 - 1, 10_000])
def test_declared_length_is_checked_against_the_file_size(length: int) -> None:
    frame = bytearray(make_frame(1))
    frame[12:16] = length.to_bytes(4, "big")

    assert frame_at(make_file(bytes(frame)), BLOCK, HEADER.seed) is None


def test_a_frame_that_counts_wrong_is_corrupt() -> None:
    entry = bytes(make_entry(100))
    for counts in ({"entry_count": 2}, {"entry_count": 0}, {"fact_count": 2}, {"fact_count": 0}):
        data = make_file(make_frame(1, [(1, entry)], [(1, b"abc")], **counts))
        (frame,) = iter_frames(data, HEADER)
        with pytest.raises(CorruptLog, match="than"):
            _walk(data, frame)


def _walk(data: memoryview, frame: Frame) -> None:
    list(iter_entries(data, frame))
    list(iter_facts(data, frame))


def test_an_entry_or_fact_may_not_reach_beyond_its_frame() -> None:
    long = bytearray(make_entry(100))
    long[8:12] = (10_000).to_bytes(4, "big")
    data = make_file(make_frame(1, [(1, bytes(long))]))
    (frame,) = iter_frames(data, HEADER)
    with pytest.raises(CorruptLog, match="reaches beyond"):
        list(iter_entries(data, frame))

    with pytest.raises(CorruptLog, match="facts begin beyond"):
        list(iter_entries(data, frame._replace(facts_at=frame.length + 1)))

    data = make_file(make_frame(1, [], [(1, FACT.pack(1, 0, 99))]))
    (frame,) = iter_frames(data, HEADER)
    with pytest.raises(CorruptLog, match="reaches beyond"):
        list(iter_facts(data, frame._replace(facts_at=frame.facts_at + FACT.size)))


def test_newer_formats_are_refused_with_a_word() -> None:
    block = encode_file_header(HEADER)
    block[15] = 2
    _fix(block, 8, 12, 0)
    with pytest.raises(NewerFormat, match="2 is newer than 1"):
        decode_file_header(memoryview(block))

    frame = bytearray(make_frame(1)[:FRAME_HEADER])
    frame[8] = 2
    _fix(frame, 4, 8, HEADER.seed)
    with pytest.raises(NewerFormat, match="frame format 2"):
        frame_at(make_file(bytes(frame)), BLOCK, HEADER.seed)


def _fix(data: bytearray, at: int, start: int, seed: int) -> None:
    from trilogue.entry.checksum import crc32c

    data[at : at + 4] = crc32c(bytes(data[start:]), seed).to_bytes(4, "big")


def test_a_damaged_file_header_is_none() -> None:
    whole = bytes(encode_file_header(HEADER))
    assert decode_file_header(memoryview(whole)) == HEADER
    assert decode_file_header(memoryview(whole[:-1])) is None
    assert decode_file_header(memoryview(bytes(BLOCK))) is None
    for at in (0, 8, 12, 20, 30, 40, 100, BLOCK - 1):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        assert decode_file_header(memoryview(damaged)) is None


def test_a_frame_that_is_too_large_is_refused() -> None:
    with pytest.raises(FrameTooLarge):
        make_frame(1, [], [(1, bytes(MAX_FRAME))])


def test_file_name_round_trips_and_other_names_have_no_number() -> None:
    assert file_name(12) == "0000000000000012.journal"
    assert file_number(file_name(12)) == 12
    for name in ("12.journal", "0000000000000012.spare", "000000000000001x.journal", "journal"):
        assert file_number(name) is None


def test_nothing_is_read_beyond_the_data() -> None:
    assert frame_at(memoryview(b"TRLF" + bytes(59)), 0, 0) is None
    assert sequence_at(memoryview(b"TRLF" + bytes(59)), 0) is None
    assert list(iter_frames(memoryview(b""), HEADER)) == []
