import pytest

from tests.entry.samples import header_of, patched, sealed
from trilogue.entry.entry import Codec, EntryError, Format, InvalidEntry, UnsupportedCompression
from trilogue.entry.header import HEADER, HEADER_SIZE


def test_header_is_61_bytes():
    assert HEADER.size == HEADER_SIZE == 61


def test_span_covers_holes_where_the_count_does_not():
    header = header_of(patched(sealed(b"", count=0, last=99), base_offset=1000))

    assert header.span == 100
    assert header.last_offset == 1099
    assert header.record_count == 0


def test_attributes_are_spelled_out():
    header = header_of(patched(sealed(b""), attributes=0x0238 | Codec.ZSTD))

    assert header.codec is Codec.ZSTD
    assert header.format is Format.TUBEMQ
    assert header.is_control
    assert header.is_transactional
    assert header.log_append_time
    assert header_of(sealed(b"")).format is Format.KAFKA


def test_codecs_and_formats_that_do_not_exist_are_entry_errors():
    header = header_of(patched(sealed(b""), attributes=0x0305))

    with pytest.raises(UnsupportedCompression):
        _ = header.codec
    with pytest.raises(InvalidEntry):
        _ = header.format
    assert issubclass(UnsupportedCompression, EntryError)
