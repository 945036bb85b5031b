"""Headers: their versions, and the two exceptions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.kafka.definitions import RELEASES, definition, require_definitions, span
from tests.wire.kafka.instances import SPOKEN, Spoken
from trilogue.wire.errors import EncodeError, WireError
from trilogue.wire.kafka.codec.header import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
    is_flexible,
)
from trilogue.wire.kafka.codec.schema import table

API_VERSIONS, METADATA, CONTROLLED_SHUTDOWN, UNKNOWN = 18, 3, 7, 9999


def request(key: int, version: int, client_id: str | None = "ab", correlation: int = 5) -> bytes:
    out = bytearray()
    encode_request_header(out, RequestHeader(key, version, correlation, client_id))
    return bytes(out)


def response(key: int, version: int) -> bytes:
    out = bytearray()
    encode_response_header(out, key, version, 5)
    return bytes(out)


@pytest.mark.parametrize("spoken", SPOKEN, ids=str)
def test_headers_are_flexible_where_bodies_are(spoken: Spoken):
    cls, version = spoken
    known = table(cls)

    assert is_flexible(known.key, version) == (version >= known.flexible)


def test_request_header_v1_ends_with_the_client_id():
    assert request(METADATA, 8) == bytes.fromhex("0003 0008 00000005 0002 6162")
    assert request(METADATA, 8, None) == bytes.fromhex("0003 0008 00000005 ffff")


def test_request_header_v2_keeps_the_long_client_id_and_adds_tags():
    assert request(METADATA, 9) == bytes.fromhex("0003 0009 00000005 0002 6162 00")


def test_controlled_shutdown_v0_has_no_client_id():
    assert request(CONTROLLED_SHUTDOWN, 0) == bytes.fromhex("0007 0000 00000005")
    assert decode_request_header(bytes.fromhex("0007 0000 00000005 ffff")) == (
        RequestHeader(7, 0, 5, None),
        8,
    )


def test_response_headers_have_tags_in_flexible_versions():
    assert response(METADATA, 8) == bytes.fromhex("00000005")
    assert response(METADATA, 9) == bytes.fromhex("00000005 00")


@pytest.mark.parametrize("version", range(5))
def test_api_versions_answers_with_header_v0_in_every_version(version: int):
    assert response(API_VERSIONS, version) == bytes.fromhex("00000005")
    assert decode_response_header(b"\0\0\0\5\1", API_VERSIONS, version) == (5, 4)


@given(
    st.sampled_from([0, 1, 3, 18]),
    st.integers(0, 13),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.one_of(st.none(), st.text(max_size=20)),
)
def test_headers_come_back_as_they_went(
    key: int, version: int, correlation: int, client_id: str | None
):
    raw = request(key, version, client_id, correlation)
    answered = response(key, version)

    assert decode_request_header(memoryview(raw + b"body")) == (
        RequestHeader(key, version, correlation, client_id),
        len(raw),
    )
    assert decode_response_header(answered + b"body", key, version) == (5, len(answered))


def test_unknown_tags_of_a_header_are_skipped():
    assert decode_request_header(bytes.fromhex("0003 0009 00000005 ffff 01 07 02 abcd")) == (
        RequestHeader(3, 9, 5, None),
        15,
    )
    assert decode_response_header(bytes.fromhex("00000005 01 07 02 abcd"), 3, 9) == (5, 9)


def test_a_request_that_is_unknown_still_has_a_readable_header():
    header, _ = decode_request_header(bytes.fromhex("270f 7fff 00000005 0002 6162"))

    assert header == RequestHeader(UNKNOWN, 0x7FFF, 5, "ab")


def test_a_guessed_version_of_api_versions_can_be_read_and_refused():
    header, pos = decode_request_header(bytes.fromhex("0012 0063 00000005 0002 6162 00"))

    assert header == RequestHeader(API_VERSIONS, 99, 5, "ab")
    assert pos == 13


@pytest.mark.parametrize(
    "raw",
    [
        "", "0003", "0003 0008 0000", "0003 0008 00000005", "0003 0008 00000005 0003 6162",
        "0003 0008 00000005 7fff 6162", "0003 0008 00000005 0001 ff",
        "0003 0009 00000005 0002 6162",
        "0003 0009 00000005 ffff ffffffff7f", "0003 0009 00000005 ffff ffffffffffff",
        "0003 0009 00000005 ffff 01 01 05 ab",
    ],
)  # fmt: skip
def test_a_broken_request_header_is_a_wire_error(raw: str):
    with pytest.raises(WireError, match="request header"):
        decode_request_header(bytes.fromhex(raw))


@pytest.mark.parametrize("raw", ["", "000000", "00000005", "00000005 80", "00000005 01 01 05 ab"])
def test_a_broken_response_header_is_a_wire_error(raw: str):
    with pytest.raises(WireError, match="response header"):
        decode_response_header(bytes.fromhex(raw), METADATA, 9)


@pytest.mark.parametrize("client_id", ["x" * 32768, "\ud800"])
def test_a_client_id_that_cannot_be_expressed_is_refused(client_id: str):
    with pytest.raises(EncodeError):
        request(METADATA, 1, client_id)


def test_headers_match_the_definitions_of_kafka():
    """RequestHeader.json: client_id is never a compact string, the flexible version is 2."""
    for release in RELEASES:
        require_definitions(release)
    newest = definition(RELEASES[-1], "RequestHeader")
    answer = definition(RELEASES[-1], "ResponseHeader")
    (client_id,) = (one for one in newest.raw["fields"] if one["name"] == "ClientId")

    assert (newest.last, newest.flexible) == (2, 2)
    assert (answer.last, answer.flexible) == (1, 1)
    assert client_id["flexibleVersions"] == "none"
    assert span(client_id["nullableVersions"])[0] <= 1
