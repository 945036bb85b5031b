"""Keys and values of messages as JSON: `binary` (base64), `json`, and those with schemas."""

from __future__ import annotations

import base64
import binascii
import codecs
from typing import Any, Final

import msgspec

from trilogue.gateway.http.kafka_rest.rest_errors import (
    INVALID_REQUEST,
    NO_JSON_VALUE,
    RestError,
)
from trilogue.gateway.http.kafka_rest.schema_codecs import FORMATS as SCHEMA_FORMATS
from trilogue.gateway.http.kafka_rest.schema_lookup import SchemaLookup

BINARY, JSON = "binary", "json"
FORMATS: Final = (BINARY, JSON, *SCHEMA_FORMATS)
UNSUPPORTED_TYPE: Final = 415
PIECE_BYTES: Final = 64 << 10


def media_type(embedded: str) -> str:
    """Return the media type of records in a format."""
    return f"application/vnd.kafka.{embedded}.v2+json"


def format_of(content_type: str) -> str:
    """Return the format of a request's records, of version 1 or 2; raises RestError 415."""
    name = content_type.partition(";")[0].strip().lower().replace(".v1+json", ".v2+json")
    if name in {"application/json", "application/vnd.kafka+json", "application/vnd.kafka.v2+json"}:
        return BINARY
    for each in FORMATS:
        if name == media_type(each):
            return each
    raise RestError(UNSUPPORTED_TYPE, f"HTTP 415 Unsupported Media Type: {name[:80]}")


def encode(embedded: str, given: Any) -> bytes | None:
    """Return the bytes of a key or a value; raises RestError 422."""
    if given is None:
        return None
    if embedded == JSON:
        return msgspec.json.encode(given)
    if not isinstance(given, str):
        raise RestError(INVALID_REQUEST, "keys and values in binary format are texts in base64")
    try:
        return base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError) as problem:
        raise RestError(INVALID_REQUEST, f"no base64: {problem}") from problem


async def decode_stored(schemas: SchemaLookup, embedded: str, stored: bytes | None) -> Any:
    """Return a key or a value in any format, ready to be encoded as JSON; RestError if it is none.

    No second copy of a large one is made: the encoder makes base64 of bytes.
    """
    if stored is not None and embedded in SCHEMA_FORMATS:
        return await schemas.decode(embedded, stored)
    if stored is None or embedded == BINARY:
        return stored
    try:
        checked = msgspec.json.decode(stored, type=msgspec.Raw)
        _check_utf8(stored)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise RestError(NO_JSON_VALUE, f"the message is no JSON: {problem}") from problem
    return checked


def _check_utf8(stored: bytes) -> None:
    """Raise UnicodeDecodeError where it is no UTF-8, which msgspec does not look at here."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    for at in range(0, len(stored), PIECE_BYTES):
        decoder.decode(stored[at : at + PIECE_BYTES])
    decoder.decode(b"", final=True)
