from __future__ import annotations

import gzip
import os
import tracemalloc
from contextlib import suppress

import aiokafka.codec
import cramjam
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.entry.samples import CODECS
from trilogue.entry.compression import compress, decompress
from trilogue.entry.entry import (
    Codec,
    CorruptEntry,
    EntryError,
    EntryTooLarge,
    UnsupportedCompression,
)

MIB = 1024 * 1024
PACKERS = {
    Codec.GZIP: [gzip.compress, aiokafka.codec.gzip_encode],
    Codec.SNAPPY: [
        lambda data: aiokafka.codec.snappy_encode(data, xerial_compatible=True),
        lambda data: aiokafka.codec.snappy_encode(data, xerial_compatible=False),
        lambda data: bytes(cramjam.snappy.compress_raw(data)),
    ],
    Codec.LZ4: [
        lz4.frame.compress,
        lambda data: lz4.frame.compress(data, block_linked=True, content_checksum=True),
        lambda data: bytes(cramjam.lz4.compress(data)),
    ],
    Codec.ZSTD: [aiokafka.codec.zstd_encode, lambda data: bytes(cramjam.zstd.compress(data, 19))],
}
UNPACKERS = {
    Codec.GZIP: gzip.decompress,
    Codec.SNAPPY: aiokafka.codec.snappy_decode,
    Codec.LZ4: lz4.frame.decompress,
    Codec.ZSTD: aiokafka.codec.zstd_decode,
}
payloads = st.binary(max_size=300) | st.builds(
    lambda piece, times: piece * times, st.binary(min_size=1, max_size=50), st.integers(1, 5000)
)


@pytest.mark.parametrize("codec", CODECS)
@given(data=payloads)
def test_compression_round_trips(codec: int, data: bytes):
    assert bytes(decompress(codec, compress(codec, data), len(data))) == data


@pytest.mark.parametrize("codec", UNPACKERS)
@given(data=payloads.filter(len))
def test_others_read_what_we_compress(codec: Codec, data: bytes):
    assert bytes(UNPACKERS[codec](compress(codec, data))) == data


@pytest.mark.parametrize(
    ("codec", "pack"), [(codec, pack) for codec, packs in PACKERS.items() for pack in packs]
)
@given(data=payloads.filter(len))
def test_we_read_what_others_compress(codec: Codec, pack, data: bytes):
    assert bytes(decompress(codec, memoryview(bytes(pack(data))), len(data))) == data


@pytest.mark.parametrize("codec", CODECS)
def test_incompressible_data_round_trips(codec: int):
    data = os.urandom(300_000)

    assert bytes(decompress(codec, compress(codec, data), len(data))) == data


def test_lz4_frames_have_independent_blocks_as_java_demands():
    frame = compress(Codec.LZ4, b"a" * 200_000)

    assert frame[:4] == bytes.fromhex("04224d18")
    assert frame[4] == 0x60, "version 1, independent blocks, nothing optional"
    assert lz4.frame.get_frame_info(frame)["block_linked"] is False


def test_snappy_is_framed_as_java_demands():
    packed = compress(Codec.SNAPPY, b"a" * 100_000)

    assert packed[:16] == b"\x82SNAPPY\x00" + bytes.fromhex("00000001 00000001")
    first = int.from_bytes(packed[16:20], "big")
    assert cramjam.snappy.decompress_raw_len(packed[20 : 20 + first]) == 32 * 1024


@pytest.mark.parametrize("codec", CODECS)
def test_one_byte_more_than_the_limit_is_too_large(codec: int):
    packed = compress(codec, b"ab" * 50_000)

    assert len(decompress(codec, packed, 100_000)) == 100_000
    with pytest.raises(EntryTooLarge):
        decompress(codec, packed, 99_999)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_stops_at_the_limit(codec: Codec):
    bomb = compress(codec, bytes(100 * MIB))
    tracemalloc.start()

    with pytest.raises(EntryTooLarge):
        decompress(codec, bomb, 4 * MIB)

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * MIB


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_every_cut_is_corrupt(codec: Codec):
    packed = compress(codec, b"".join(b"%d" % i for i in range(200)))

    for size in range(len(packed)):
        if codec is Codec.SNAPPY and size == 16:
            continue  # a header without blocks: a valid frame of nothing
        with pytest.raises(CorruptEntry):
            decompress(codec, packed[:size], MIB)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@given(data=st.data())
def test_any_damage_ends_as_an_entry_error(codec: Codec, data: st.DataObject):
    packed = bytearray(compress(codec, b"".join(b"%d" % i for i in range(200))))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    packed = packed[: data.draw(st.integers(0, len(packed)))]

    with suppress(EntryError):
        decompress(codec, packed, 10_000)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_bytes_after_the_end_are_corrupt(codec: Codec):
    with pytest.raises(CorruptEntry):
        decompress(codec, compress(codec, b"abc") + b"more", MIB)


XERIAL = b"\x82SNAPPY\x00" + bytes.fromhex("00000001 00000001")


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        XERIAL[:12],
        XERIAL + b"\x00\x00",
        XERIAL + bytes.fromhex("ffffffff 00"),
        XERIAL + bytes.fromhex("7fffffff 00"),
        XERIAL + bytes.fromhex("00000000"),
        XERIAL + bytes.fromhex("00000001 00") * 1000,
        bytes.fromhex("ffffffff0f 00"),  # declares 4 GiB
        bytes.fromhex("ffffff7f 00 00"),  # declares 256 MiB
    ],
    ids=["nothing", "header cut", "size cut", "negative", "huge", "zero", "swarm", "4G", "256M"],
)
def test_hostile_snappy_is_refused_before_anything_is_allocated(packed: bytes):
    tracemalloc.start()

    with pytest.raises(CorruptEntry):
        decompress(Codec.SNAPPY, packed, 1024 * MIB)

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MIB


def test_codecs_that_do_not_exist_are_unsupported():
    for codec in (5, 6, 7, -1):
        with pytest.raises(UnsupportedCompression):
            decompress(codec, b"", 1)
        with pytest.raises(UnsupportedCompression):
            compress(codec, b"")
