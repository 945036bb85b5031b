"""Reserved names: how one protocol's message carries what only another one can say.

A name that begins with `trilogue.` is ours. As headers of a message (and so of a Kafka record):

    trilogue.ordering-key            the ordering key
    trilogue.type                    what a stream filter selects by
    trilogue.pulsar.key-form         `base64`: the producer marked the key as base64 though it is
                                     text; `broken`: marked, and not base64: the key is as it stood
    trilogue.pulsar.null-key         the key of a key-value message was null
    trilogue.pulsar.schema-version   bytes
    trilogue.pulsar.schema-id        bytes
    trilogue.pulsar.replicated-from  a cluster
    trilogue.pulsar.deliver-at       not before this time, ms

As properties of a Pulsar message:

    trilogue.type                    as above
    trilogue.timestamp               a timestamp that an event time cannot say: 0 or negative
    trilogue.header.<n>.<form>.<name>  a header that a property cannot say: the n-th of its name
        (from 0), as `text`, in `base64`, or `null`

As attributes of a TubeMQ message, where neither names nor values may have `,` or `=`:

    trilogue.key, trilogue.ordering-key                    text
    trilogue.key.base64, trilogue.ordering-key.base64      what is no such text; without padding
    trilogue.type.base64             a type that `$msgType$` cannot say
    trilogue.timestamp               the ms of a time that `$msgTime$` cannot say; -1 is none
    trilogue.value                   `null`: the message is a tombstone, its body is empty
    trilogue.header.<n>.<form>.<name>  as above, in the name `%`, `,`, `=`, `$` as %25 and so on

As headers and properties, of what TubeMQ's attributes say that is no name and value:

    trilogue.tubemq.attribute        one that does not read `name=value`, as it stood

Properties are text, and clients keep them in a map; attributes are too. So a header travels as it
is when it is the first of its name and its value is such text, and by the row with its place
otherwise. What an application itself writes under these names is taken at its word, or kept as it
is where it makes no sense.
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
    """Say headers as properties; nothing of them is lost."""
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
    """Say a property as the header that it is, or was."""
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
    """Decode base64 that is spelled as we would spell it, or return None."""
    try:
        decoded = b64decode(text, validate=True)
    except (Base64Error, ValueError):
        return None
    return decoded if b64encode(decoded).decode() == text else None


def decode_unpadded(text: str) -> bytes | None:
    """Decode base64 without its padding, spelled as we would spell it, or return None."""
    return None if "=" in text else decode_base64(text + "=" * (-len(text) % 4))


def encode_unpadded(value: bytes) -> str:
    """Spell bytes in base64 without padding: no `=` may stand there."""
    return b64encode(value).decode().rstrip("=")


def parse_escaped(name: str) -> tuple[str, str] | None:
    """Read form and name of a header that had to be escaped, from the name it has instead."""
    match = _ESCAPED.fullmatch(name)
    return None if match is None else (match[1], match[2])


def parse_number(text: str) -> int | None:
    """Read a number of 64 bits that is spelled as we would spell it, or return None."""
    if not _NUMBER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
