"""Pulsar's codecs: their formats, and that a bomb costs no more memory than the limit."""

from __future__ import annotations

import tracemalloc
import zlib

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trilogue.entry.entry import CorruptEntry, EntryError, EntryTooLarge, UnsupportedCompression
from trilogue.entry.pulsar.compression import PulsarCodec, compress, decompress

LIMIT = 1 << 20
CODECS = tuple(PulsarCodec)
PACKED = tuple(codec for codec in CODECS if codec is not PulsarCodec.NONE)
TEXT = b"what real producers send repeats itself, and repeats itself. " * 30


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.one_of(st.binary(max_size=300), st.binary(max_size=9).map(lambda b: b * 2000)))
@settings(max_examples=30)
def test_compression_round_trips(codec: int, data: bytes):
    assert data == decompress(codec, compress(codec, data), len(data), LIMIT)


@pytest.mark.parametrize("kind", [bytes, bytearray, lambda b: memoryview(b)[:]])
@pytest.mark.parametrize("codec", CODECS)
def test_any_buffer_is_taken(codec: int, kind):
    assert decompress(codec, kind(compress(codec, kind(TEXT))), len(TEXT), LIMIT) == TEXT


def test_zlib_without_an_end_is_read_as_java_writes_it():
    """Java ends with a sync flush instead of the final block and the checksum."""
    packer = zlib.compressobj()
    data = packer.compress(TEXT) + packer.flush(zlib.Z_SYNC_FLUSH)
    assert data.endswith(b"\0\0\xff\xff")

    assert decompress(PulsarCodec.ZLIB, data, len(TEXT), LIMIT) == TEXT


def test_zstd_without_its_content_size_is_read():
    packer = cramjam.zstd.Compressor()
    packer.compress(TEXT)

    assert decompress(PulsarCodec.ZSTD, bytes(packer.finish()), len(TEXT), LIMIT) == TEXT


def test_the_forms_on_the_wire_are_those_of_real_clients():
    assert compress(PulsarCodec.LZ4, b"a" * 20)[:2] == b"\x1aa"  # a raw block: a literal, a match
    assert compress(PulsarCodec.SNAPPY, b"a" * 20)[0] == 20  # a raw block: its length first
    assert compress(PulsarCodec.ZSTD, TEXT)[:4] == bytes.fromhex("28b52ffd")
    assert zlib.decompress(compress(PulsarCodec.ZLIB, TEXT)) == TEXT  # with its end


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("wrong", [-1, 1, 1000])
def test_wrong_uncompressed_size_is_corrupt(codec: int, wrong: int):
    with pytest.raises(CorruptEntry):
        decompress(codec, compress(codec, TEXT), len(TEXT) + wrong, LIMIT)


@pytest.mark.parametrize("codec", CODECS)
def test_more_than_the_limit_is_refused(codec: int):
    with pytest.raises(EntryTooLarge):
        decompress(codec, compress(codec, TEXT), len(TEXT), len(TEXT) - 1)


@pytest.mark.parametrize("codec", PACKED)
def test_a_cut_payload_is_corrupt(codec: int):
    data = compress(codec, TEXT)
    for size in range(0, len(data) - 8, 3):
        with pytest.raises(CorruptEntry):
            decompress(codec, data[:size], len(TEXT), LIMIT)


@pytest.mark.parametrize("codec", PACKED)
@given(data=st.binary(max_size=100), size=st.integers(0, 2**32 - 1))
@settings(max_examples=50)
def test_any_bytes_are_decompressed_or_refused(codec: int, data: bytes, size: int):
    try:
        out = decompress(codec, data, size, LIMIT)
    except EntryError:
        return
    assert len(out) == size


@pytest.mark.parametrize("codec", PACKED)
def test_a_size_that_is_only_declared_is_never_allocated(codec: int):
    """A small payload declares 256 MiB, which the limit would allow."""
    data = compress(codec, b"x")
    tracemalloc.start()
    with pytest.raises(CorruptEntry):
        decompress(codec, data, 256 << 20, 1 << 30)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 1 << 20


@pytest.mark.parametrize("codec", PACKED)
def test_decompression_bomb_allocates_at_most_its_declared_size(codec: int):
    bomb = compress(codec, bytes(64 << 20))
    tracemalloc.start()
    with pytest.raises(CorruptEntry):
        decompress(codec, bomb, 1 << 20, 1 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 4 << 20


def test_a_codec_that_does_not_exist_is_named():
    for use in (lambda: compress(5, b""), lambda: decompress(5, b"", 0, LIMIT)):
        with pytest.raises(UnsupportedCompression, match="5"):
            use()
