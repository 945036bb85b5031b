"""Reserved names: they carry the fields of one protocol's messages in those of another.

Names that begin with `trilogue.` are reserved. As headers of a message (and so of a Kafka record):

    trilogue.ordering-key            the ordering key
    trilogue.type                    the message type, which TubeMQ's stream filters select by
    trilogue.pulsar.key-form         `base64`: the producer marked the key as base64 though it is
                                     text; `broken`: marked, but not base64: the key is unchanged
    trilogue.pulsar.null-key         the key of a key-value message was null
    trilogue.pulsar.schema-version   bytes
    trilogue.pulsar.schema-id        bytes
    trilogue.pulsar.replicated-from  a cluster
    trilogue.pulsar.deliver-at       not before this time, ms

As properties of a Pulsar message:

    trilogue.type                    as above
    trilogue.timestamp               a timestamp that an event time cannot hold: 0 or negative
    trilogue.header.<n>.<form>.<name>  a header that a property cannot hold: the n-th of its name
        (from 0), as `text`, in `base64`, or `null`

As attributes of a TubeMQ message, where neither names nor values may have `,` or `=`:

    trilogue.key, trilogue.ordering-key                    text
    trilogue.key.base64, trilogue.ordering-key.base64      other bytes; without padding
    trilogue.type.base64             a type that `$msgType$` cannot hold
    trilogue.timestamp               a time in ms that `$msgTime$` cannot hold; -1 is none
    trilogue.value                   `null`: the message is a tombstone, its body is empty
    trilogue.header.<n>.<form>.<name>  as above, in the name `%`, `,`, `=`, `$` as %25 and so on

As headers and properties, for a TubeMQ attribute without a name and a value:

    trilogue.tubemq.attribute        an attribute that is not `name=value`, unchanged

Properties and attributes are text, and clients keep them in a map. So a header keeps its name when
it is the first of its name and its value is valid text, and becomes `trilogue.header...` otherwise.
Reserved names that an application writes itself are interpreted the same way, or kept unchanged
where they are not valid.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from contextlib import suppress
from typing import Final, TypeAlias

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
Properties: TypeAlias = list[tuple[str, str]]

RESERVED: Final = "trilogue."
ORDERING_KEY: Final = "trilogue.ordering-key"
TYPE: Final = "trilogue.type"
TIMESTAMP: Final = "trilogue.timestamp"
KEY_FORM: Final = "trilogue.pulsar.key-form"
NULL_KEY: Final = "trilogue.pulsar.null-key"
SCHEMA_VERSION: Final = "trilogue.pulsar.schema-version"
SCHEMA_ID: Final = "trilogue.pulsar.schema-id"
REPLICATED_FROM: Final = "trilogue.pulsar.replicated-from"
DELIVER_AT: Final = "trilogue.pulsar.deliver-at"

KEY: Final = "trilogue.key"
VALUE: Final = "trilogue.value"
IN_BASE64: Final = ".base64"
NULL: Final = "null"
ATTRIBUTE: Final = "trilogue.tubemq.attribute"

KEY_IS_BASE64: Final = b"base64"
KEY_IS_BROKEN: Final = b"broken"

_ESCAPED: Final = re.compile(
    r"trilogue\.header\.(?:0|[1-9][0-9]{0,8})\.(text|base64|null)\.(.*)", re.DOTALL
)
_NUMBER: Final = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)


def properties_of(headers: Headers) -> Properties:
    """Convert headers to properties without loss."""
    found: Properties = []
    seen: dict[str, int] = {}
    for name, value in headers:
        before = seen.get(name, 0)
        seen[name] = before + 1
        text = None
        if value is not None:
            with suppress(UnicodeDecodeError):
                text = value.decode()
        if text is not None and not before and not _needs_escape(name):
            found.append((name, text))
        elif text is not None:
            found.append((f"trilogue.header.{before}.text.{name}", text))
        elif value is None:
            found.append((f"trilogue.header.{before}.null.{name}", ""))
        else:
            encoded = b64encode(value).decode()
            found.append((f"trilogue.header.{before}.base64.{name}", encoded))
    return found


def _needs_escape(name: str) -> bool:
    """Whether a property of this name would be read as something else."""
    if not name.startswith(RESERVED):
        return False
    return name in {TIMESTAMP, TYPE} or parse_escaped(name) is not None


def header_of(name: str, value: str) -> tuple[str, bytes | None]:
    """Convert a property to a header, also one that `properties_of` escaped."""
    if name.startswith(RESERVED):
        escaped = parse_escaped(name)
        if escaped is not None:
            form, original = escaped
            if form == "text":
                return original, value.encode()
            if form == "null":
                return original, None
            decoded = decode_base64(value)
            if decoded is not None:
                return original, decoded
    return name, value.encode()


def decode_base64(text: str) -> bytes | None:
    """Decode base64; None where encoding the result would not give the same text."""
    try:
        decoded = b64decode(text, validate=True)
    except (Base64Error, ValueError):
        return None
    return decoded if b64encode(decoded).decode() == text else None


def decode_unpadded(text: str) -> bytes | None:
    """Decode base64 without padding; None where encoding would not give the same text."""
    return None if "=" in text else decode_base64(text + "=" * (-len(text) % 4))


def encode_unpadded(value: bytes) -> str:
    """Encode bytes in base64 without padding, since values must not have `=`."""
    return b64encode(value).decode().rstrip("=")


def parse_escaped(name: str) -> tuple[str, str] | None:
    """Return form and original name of an escaped header, None for other names."""
    match = _ESCAPED.fullmatch(name)
    return None if match is None else (match[1], match[2])


def parse_number(text: str) -> int | None:
    """Parse a signed number of 64 bits in canonical form; None for any other text."""
    if not _NUMBER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
