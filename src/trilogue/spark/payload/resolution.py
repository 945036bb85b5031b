"""Finds the schema of a payload: in the options, or in the registry of the topics."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trilogue.spark.errors import OptionError
from trilogue.spark.payload.payload_options import Format, PayloadOptions
from trilogue.spark.payload.registered_schema import RegisteredSchema, find_common_schema
from trilogue.spark.read_options import ReadOptions

if TYPE_CHECKING:
    from trilogue.spark.payload.confluent_registry import ConfluentRegistry
    from trilogue.spark.payload.payload import Payload

VALUE_SUFFIX = "-value"


def resolve_payload(options: ReadOptions) -> Payload | None:
    """Return the payload with its schema; the registry gives it where the options do not."""
    wanted = options.payload
    if wanted is None:
        return None
    from trilogue.spark.payload.payload import make_payload

    if wanted.registry is not None:
        registry = replace(wanted.registry, security=options.security)
        wanted = replace(wanted, registry=registry)
    registered = None
    if wanted.schema_text is None and wanted.descriptor is None:
        registered = _fetch(options, wanted)
    return make_payload(wanted, registered)


def _fetch(options: ReadOptions, wanted: PayloadOptions) -> RegisteredSchema:
    if wanted.registry is not None:
        registry = wanted.registry
        subjects = [wanted.subject] if wanted.subject else None
        return find_common_schema(
            subjects or [f"{topic}{VALUE_SUFFIX}" for topic in _find_topics(options)],
            lambda subject: _fetch_confluent(registry, subject, wanted),
        )
    from trilogue.spark.payload.pulsar_registry import fetch_schema

    url, tls = wanted.admin_url, options.security.make_context()
    assert url is not None
    return find_common_schema(
        _find_topics(options), lambda topic: fetch_schema(url, topic, wanted.admin_token, tls)
    )


def _find_topics(options: ReadOptions) -> list[str]:
    from trilogue.spark.topic_lookup import find_lookup

    return sorted({topic for topic, _ in find_lookup(options).partitions(options)})


def _fetch_confluent(
    registry: ConfluentRegistry, subject: str, wanted: PayloadOptions
) -> RegisteredSchema:
    """Return the wanted version of a subject, with what it references."""
    from trilogue.spark.payload.confluent_registry import SERIALIZED
    from trilogue.spark.payload.confluent_schemas import expand_avro, expand_json

    is_protobuf = wanted.format is Format.PROTOBUF
    found = registry.fetch_version(
        subject, wanted.subject_version, SERIALIZED if is_protobuf else ""
    )
    if found is None:
        raise OptionError(
            f"subject {subject}: no version {wanted.subject_version} in the registry "
            f"{registry.urls[0]}; give option 'schema.registry.subject' or 'payloadSchema'"
        )
    kind = found.language
    if kind != wanted.format.value.upper():
        return RegisteredSchema(kind, "")
    if not is_protobuf:
        expand = expand_avro if wanted.format is Format.AVRO else expand_json
        return RegisteredSchema(kind, expand(registry, found))
    from trilogue.spark.payload.confluent_protobuf import MessageTypes, expand_protobuf

    definition = expand_protobuf(registry, found)
    message = wanted.message or MessageTypes(definition).find_name((0,))
    return RegisteredSchema("PROTOBUF_NATIVE", definition, message)
