"""Options about typed payloads, checked before any request."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trilogue.spark.errors import OptionError
from trilogue.spark.options import parse_integer
from trilogue.spark.payload.framing import Framing

if TYPE_CHECKING:
    from trilogue.spark.payload.confluent_registry import ConfluentRegistry

KEY, VALUE = "key", "value"
NAMES = {VALUE: "payload", KEY: "keyPayload"}
"""What the options of the payload of a column begin with."""
REGISTRY = "schema.registry."
LATEST = "latest"
CORRUPT = "_corrupt_record"
CORRUPT_KEY = "_corrupt_key"
PAYLOAD_OPTIONS = {
    "payload": "json, avro or protobuf: the column value is a struct of typed fields",
    "payloadSchema": "json: DDL such as 'id BIGINT, name STRING', Spark's JSON of a schema or an "
    "Avro or JSON schema; avro: the Avro schema of the messages, or with a Confluent registry that "
    "of the columns; without it, the topic's schema in a registry",
    "payloadDescriptor": "protobuf: the file that protoc --include_imports --descriptor_set_out "
    "writes, on the driver",
    "payloadMessage": "protobuf: the full name of the message",
    "keyPayload": "json, avro or protobuf: the column key is a struct of typed fields; with a "
    "Confluent registry by the subject TOPIC-key",
    "keyPayloadSchema": "as payloadSchema, of keys",
    "keyPayloadDescriptor": "as payloadDescriptor, of keys",
    "keyPayloadMessage": "as payloadMessage, of keys",
    "schema.registry.url": "http://host:port[/path][,…] of a Confluent registry (a node's is below "
    "/schema-registry): the schema of the columns is the latest of the topic, each message is read "
    "by that which its 5 bytes name",
    "schema.registry.subject": "the subject of that schema (default the topic and -value)",
    "schema.registry.version": "its version (default latest)",
    "schema.registry.basic.auth.user.info": "user:password for the registry",
    "schema.registry.bearer.auth.token": "or a token for it",
    "schema.registry.ssl.ca.location": "PEM file of its authorities, on each executor",
    "payloadFraming": "confluent (default with a Confluent registry): the 5 bytes of its clients "
    "are before each message, whose schema is the given one where no registry is named; or none",
    "mode": "a message that cannot be decoded: PERMISSIVE (default) keeps its bytes in a column, "
    "DROPMALFORMED leaves it out, FAILFAST fails; keys have the same mode, and a column "
    f"{CORRUPT_KEY}",
    "columnNameOfCorruptRecord": f"PERMISSIVE: the name of that column (default {CORRUPT})",
    "deadLetterTopic": "messages that cannot be decoded are written to this topic, at least once, "
    "with where they were read in headers, and left out (mode=DROPMALFORMED)",
    "admin.url": "the HTTP listener with Pulsar's schema registry, http://host:port; with "
    "url=pulsar:// it has the sizes for maxBytesPerTrigger, too",
    "admin.token": "a token for it",
}


OF_BOTH = (
    "payloadFraming",
    "mode",
    *(f"{REGISTRY}{name}" for name in ("url", "basic.auth.user.info", "bearer.auth.token")),
    f"{REGISTRY}ssl.ca.location",
)
"""Options of values and keys; the others are of one of them."""


class Mode(enum.Enum):
    """What becomes of a message that cannot be decoded; the names are Spark's."""

    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"
    FAILFAST = "FAILFAST"


class Format(enum.Enum):
    """How messages are encoded."""

    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadOptions:
    """The checked options of a typed payload; its schema is resolved later."""

    format: Format
    column: str = VALUE
    schema_text: str | None = None
    descriptor: str | None = None
    message: str | None = None
    mode: Mode = Mode.PERMISSIVE
    corrupt_column: str = CORRUPT
    framing: Framing = Framing.NONE
    dead_letter_topic: str | None = None
    admin_url: str | None = None
    admin_token: str | None = None
    registry: ConfluentRegistry | None = None
    subject: str | None = None
    subject_version: int | str = LATEST

    def name_option(self, part: str) -> str:
        """Return the name of an option, such as payloadSchema or keyPayloadSchema."""
        return f"{NAMES[self.column]}{part}"

    def __repr__(self) -> str:
        """Return the format and the mode: a token is no text for logs."""
        return f"PayloadOptions({self.format.value}, {self.mode.value})"


def parse_payloads(options: Mapping[str, str]) -> list[PayloadOptions]:
    """Check the options of the payloads of values and keys; OptionError."""
    found = [column for column, name in NAMES.items() if name in options]
    for each in PAYLOAD_OPTIONS:
        column = KEY if each.startswith(NAMES[KEY]) else VALUE
        is_needed = not found if each in OF_BOTH else column not in found
        if each in options and is_needed:
            raise OptionError(f"option {each!r} needs option {NAMES[column]!r}")
    if KEY in found and "deadLetterTopic" in options:
        raise OptionError("option 'deadLetterTopic' keeps keys as they are: not with 'keyPayload'")
    return [_parse_payload(options, column) for column in found]


def _parse_payload(options: Mapping[str, str], column: str) -> PayloadOptions:
    name = NAMES[column]
    text = options[name].strip().lower()
    if text not in {each.value for each in Format}:
        raise OptionError(f"option {name!r} takes json, avro or protobuf, not {text!r}")
    dead_letter_topic = options.get("deadLetterTopic")
    default = "PERMISSIVE" if dead_letter_topic is None else "DROPMALFORMED"
    mode = options.get("mode", default).strip().upper()
    if mode not in Mode.__members__:
        raise OptionError(f"option 'mode' takes {', '.join(Mode.__members__)}, not {mode!r}")
    if dead_letter_topic is not None and mode != "DROPMALFORMED":
        raise OptionError(f"deadLetterTopic is with mode=DROPMALFORMED, not {mode}")
    registry = _parse_registry(options)
    default = "none" if registry is None else "confluent"
    framing = options.get("payloadFraming", default).strip().lower()
    if framing not in {each.value for each in Framing}:
        raise OptionError(f"option 'payloadFraming' takes none or confluent, not {framing!r}")
    is_value = column == VALUE
    corrupt = options.get("columnNameOfCorruptRecord", CORRUPT) if is_value else CORRUPT_KEY
    made = PayloadOptions(
        format=Format(text),
        column=column,
        schema_text=options.get(f"{name}Schema"),
        descriptor=options.get(f"{name}Descriptor"),
        message=options.get(f"{name}Message"),
        mode=Mode[mode],
        corrupt_column=corrupt,
        framing=Framing(framing),
        dead_letter_topic=dead_letter_topic,
        admin_url=options.get("admin.url") if is_value else None,
        admin_token=options.get("admin.token"),
        registry=registry,
        subject=options.get("schema.registry.subject") if is_value else None,
        subject_version=_parse_version(options) if is_value else LATEST,
    )
    _check_schema_options(made)
    return made


def _parse_registry(options: Mapping[str, str]) -> ConfluentRegistry | None:
    url = options.get(f"{REGISTRY}url")
    if url is None:
        without = sorted(name for name in options if name.startswith(REGISTRY))
        if without:
            raise OptionError(f"option {without[0]!r} needs option '{REGISTRY}url'")
        return None
    if "admin.url" in options:
        raise OptionError(f"give one registry: '{REGISTRY}url' or 'admin.url'")
    from trilogue.spark.payload.confluent_registry import ConfluentRegistry

    return ConfluentRegistry.parse(
        url,
        user_info=options.get(f"{REGISTRY}basic.auth.user.info", ""),
        token=options.get(f"{REGISTRY}bearer.auth.token", ""),
        ca=options.get(f"{REGISTRY}ssl.ca.location", ""),
    )


def _parse_version(options: Mapping[str, str]) -> int | str:
    name = f"{REGISTRY}version"
    text = options.get(name, LATEST).strip().lower()
    return LATEST if text == LATEST else parse_integer({name: text}, name) or LATEST


def _check_schema_options(made: PayloadOptions) -> None:
    name = made.name_option("")
    schema, descriptor, message = (
        made.name_option(part) for part in ("Schema", "Descriptor", "Message")
    )
    is_protobuf = made.format is Format.PROTOBUF
    if is_protobuf and made.schema_text is not None:
        raise OptionError(f"{name}=protobuf takes {descriptor} and {message}, no schema")
    if not is_protobuf and (made.descriptor or made.message):
        raise OptionError(f"{descriptor} and {message} are for {name}=protobuf")
    if made.registry is not None:
        if made.descriptor is not None and made.message is None:
            raise OptionError(f"{descriptor} needs {message}")
        return
    if (made.descriptor is None) != (made.message is None):
        raise OptionError(f"{descriptor} and {message} are given together")
    if made.schema_text is None and made.descriptor is None and made.admin_url is None:
        wanted = descriptor if is_protobuf else schema
        of_pulsar = " or 'admin.url' (Pulsar's)" if made.column == VALUE else ""
        raise OptionError(
            f"{name}: give its schema by option {wanted!r}, or 'schema.registry.url' "
            f"(Confluent's){of_pulsar} of the registry that has the topic's"
        )
