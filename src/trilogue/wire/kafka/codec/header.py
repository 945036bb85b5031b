"""Request and response headers.

    request v0   api_key int16 | api_version int16 | correlation_id int32
    request v1   v0 | client_id nullable string (int16 length, also in flexible versions)
    request v2   v1 | tagged fields                       before every flexible body
    response v0  correlation_id int32
    response v1  correlation_id int32 | tagged fields     before every flexible body

Two exceptions, both for old peers: ControlledShutdown v0 has request header v0, and ApiVersions
always has response header v0, because its client may have guessed the version.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from trilogue.wire.errors import EncodeError, WireError
from trilogue.wire.kafka.api import MESSAGES
from trilogue.wire.kafka.codec.runtime import skip_tags
from trilogue.wire.kafka.codec.schema import Bytes, table

API_VERSIONS = 18
CONTROLLED_SHUTDOWN = 7

_START = struct.Struct(">hhi")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_FLEXIBLE: dict[int, int] = {}  # first flexible version of the APIs in use
_NEVER = 1 << 16


class RequestHeader(NamedTuple):
    """The API, its version, and the correlation id of the response."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def is_flexible(api_key: int, api_version: int) -> bool:
    """Whether bodies of this version are flexible; false for an unknown API."""
    first = _FLEXIBLE.get(api_key)
    return api_version >= (_first_flexible(api_key) if first is None else first)


def _first_flexible(api_key: int) -> int:
    if api_key not in MESSAGES:
        return _NEVER
    first = _FLEXIBLE[api_key] = table(MESSAGES[api_key][0]).flexible
    return first


def decode_request_header(buf: Bytes) -> tuple[RequestHeader, int]:
    """Return the header and the position of the body.

    For an API that is not in the table the tagged fields are not skipped: the body cannot be
    decoded anyway.
    """
    try:
        key, version, correlation = _START.unpack_from(buf, 0)
        pos, client_id = _START.size, None
        if key != CONTROLLED_SHUTDOWN or version != 0:
            (size,) = _INT16.unpack_from(buf, pos)
            pos += 2
            if size >= 0:
                client_id = str(buf[pos : pos + size], "utf-8")
                pos += size
        if is_flexible(key, version):
            pos = skip_tags(buf, pos, len(buf))
    except (WireError, IndexError, UnicodeDecodeError, struct.error) as error:
        raise WireError(f"request header: {error}") from error
    if pos > len(buf):
        raise WireError("request header: the message is cut off")
    return RequestHeader(key, version, correlation, client_id), pos


def encode_request_header(out: bytearray, header: RequestHeader) -> None:
    """Append a request header in the version that belongs to its API and version."""
    key, version, correlation, client_id = header
    try:
        head = _START.pack(key, version, correlation)
        if key != CONTROLLED_SHUTDOWN or version != 0:
            name = b"" if client_id is None else client_id.encode()
            head += _INT16.pack(-1 if client_id is None else len(name)) + name
    except (struct.error, UnicodeEncodeError) as error:
        raise EncodeError(f"request header: {error}") from error
    out += head
    if is_flexible(key, version):
        out += b"\0"


def encode_response_header(
    out: bytearray, api_key: int, api_version: int, correlation_id: int
) -> None:
    """Append a response header in the version that belongs to the request's API and version."""
    out += _INT32.pack(correlation_id)
    if api_key != API_VERSIONS and is_flexible(api_key, api_version):
        out += b"\0"


def decode_response_header(buf: Bytes, api_key: int, api_version: int) -> tuple[int, int]:
    """Return the correlation id and the position of the body."""
    try:
        (correlation,) = _INT32.unpack_from(buf, 0)
        pos = _INT32.size
        if api_key != API_VERSIONS and is_flexible(api_key, api_version):
            pos = skip_tags(buf, pos, len(buf))
    except (WireError, IndexError, struct.error) as error:
        raise WireError(f"response header: {error}") from error
    return correlation, pos
