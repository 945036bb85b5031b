"""Decodes bytes of the wire protocol for `trilogue codec`: hex, base64 or raw."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import IntEnum
from typing import Any, Final

from trilogue.wire.errors import WireError
from trilogue.wire.kafka.api import MESSAGES
from trilogue.wire.kafka.codec.compile import Decoder, decoder
from trilogue.wire.kafka.codec.header import decode_request_header, decode_response_header
from trilogue.wire.kafka.codec.schema import table

SIZE_MAX: Final = 256 << 20
PREFIX: Final = 4
_HEX: Final = re.compile(rb"(?:0x)?[0-9a-fA-F]+")
_COMMENT: Final = re.compile(rb"#[^\n]*")
_BASE64: Final = re.compile(rb"[A-Za-z0-9+/]+={0,2}")


class DecodingError(Exception):
    """The bytes are not of the given encoding or message."""


def octets(given: bytes, kind: str) -> bytes:
    """Decode `hex` (spaces and `#` comments allowed), `base64`, `raw`, or the first that fits."""
    packed = b"".join(_COMMENT.sub(b"", given).split())
    try:
        if kind == "raw":
            return given
        if kind == "hex" or (kind == "auto" and _HEX.fullmatch(packed) and len(packed) % 2 == 0):
            return binascii.unhexlify(packed.removeprefix(b"0x"))
        if kind == "base64" or (
            kind == "auto" and _BASE64.fullmatch(packed) and len(packed) % 4 == 0
        ):
            return base64.b64decode(packed, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DecodingError(f"no {kind}: {error}") from error
    return given


def body(data: bytes, message: type, version: int) -> dict[str, Any]:
    """Decode a message without length and header."""
    return _decode_message(memoryview(data), 0, message, version)


def request_frame(data: bytes) -> dict[str, Any]:
    """Decode a request with its header, and with its length if present."""
    view = _without_length(data)
    try:
        header, position = decode_request_header(view)
        if header.api_key not in MESSAGES:
            raise DecodingError(f"no API {header.api_key}: is this a request?")
        message = MESSAGES[header.api_key][0]
    except WireError as error:
        raise DecodingError(str(error)) from error
    if header.api_version not in table(message):
        raise DecodingError(f"{message.__name__} has no version {header.api_version}")
    return {
        "header": {
            "api_key": header.api_key,
            "api_version": header.api_version,
            "correlation_id": header.correlation_id,
            "client_id": header.client_id,
        },
        **_decode_message(view, position, message, header.api_version),
    }


def response_frame(data: bytes, message: type, key: int, version: int) -> dict[str, Any]:
    """Decode a response with its header; API and version come from the caller."""
    view = _without_length(data)
    try:
        correlation_id, position = decode_response_header(view, key, version)
    except WireError as error:
        raise DecodingError(str(error)) from error
    return {
        "header": {"correlation_id": correlation_id},
        **_decode_message(view, position, message, version),
    }


def _without_length(data: bytes) -> memoryview:
    view = memoryview(data)
    if len(data) >= PREFIX and int.from_bytes(data[:PREFIX], "big") == len(data) - PREFIX:
        return view[PREFIX:]
    return view


def _decode_message(view: memoryview, position: int, message: type, version: int) -> dict[str, Any]:
    try:
        read: Decoder[object] = decoder(message, version)
        found, end = read(view, position)
    except WireError as error:
        raise DecodingError(str(error)) from error
    body = {"message": message.__name__, "version": version, "fields": plain(found)}
    if end < len(view):
        body["left_over_bytes"] = len(view) - end
    return body


def plain(value: object) -> Any:
    """Return a value that JSON can hold; bytes become hex with their length."""
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, memoryview | bytes | bytearray):
        return {"hex": bytes(value).hex(), "size": len(value)}
    if isinstance(value, IntEnum):
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(one) for one in value]
    return value
