"""Finds the schema of a payload: in the options, or in the registry of the topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from trilogue.spark.errors import OptionError
from trilogue.spark.payload.payload_options import LATEST, Format, PayloadOptions
from trilogue.spark.payload.registered_schema import (
    RegisteredSchema,
    choose_version,
    find_common_schema,
)
from trilogue.spark.read_options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from trilogue.spark.payload.confluent_registry import ConfluentRegistry
    from trilogue.spark.payload.payload import Payload

NO_COLUMNS: Final[Mapping[str, StructType]] = MappingProxyType({})


def resolve_payloads(
    options: ReadOptions, columns: Mapping[str, StructType] = NO_COLUMNS
) -> tuple[Payload, ...]:
    """Return payloads with their schemas; the registry gives these where the options do not.

    `columns`: those that values and keys had when Spark planned a query. The newest version that
    has them is taken, where the newest of all has others by now and no version is named.
    """
    return tuple(
        _resolve(options, wanted, columns.get(wanted.column)) for wanted in options.payloads
    )


def _resolve(options: ReadOptions, wanted: PayloadOptions, columns: StructType | None) -> Payload:
    from trilogue.spark.payload.payload import make_payload

    if wanted.registry is not None:
        registry = replace(wanted.registry, security=options.security)
        wanted = replace(wanted, registry=registry)
    registered = None
    if wanted.schema_text is None and wanted.descriptor is None:
        registered = _fetch(options, wanted, columns)
    return make_payload(wanted, registered)


def _fetch(
    options: ReadOptions, wanted: PayloadOptions, columns: StructType | None
) -> RegisteredSchema:
    from trilogue.spark.payload.payload import make_payload

    def fits(found: RegisteredSchema) -> bool:
        if columns is None:
            return True
        with suppress(OptionError):  # of an old version; the newest one is resolved once more
            there = make_payload(wanted, found).schema
            return bool(there.simpleString() == columns.simpleString())
        return False

    if wanted.registry is not None:
        registry = wanted.registry
        subjects = [wanted.subject] if wanted.subject else None
        return find_common_schema(
            subjects or [f"{topic}-{wanted.column}" for topic in _find_topics(options)],
            lambda subject: choose_version(_fetch_confluent(registry, subject, wanted), fits),
        )
    from trilogue.spark.payload.pulsar_registry import fetch_schemas

    url, tls = wanted.admin_url, options.security.make_context()
    assert url is not None
    # Messages of Avro are read by one schema here: that of an old version would misread new ones.
    count = 1 if wanted.format is Format.AVRO else None
    return find_common_schema(
        _find_topics(options),
        lambda topic: choose_version(
            fetch_schemas(url, topic, wanted.admin_token, tls)[:count], fits
        ),
    )


def _find_topics(options: ReadOptions) -> list[str]:
    from trilogue.spark.topic_lookup import find_lookup

    return sorted({topic for topic, _ in find_lookup(options).partitions(options)})


def _fetch_confluent(
    registry: ConfluentRegistry, subject: str, wanted: PayloadOptions
) -> Iterator[RegisteredSchema]:
    """Iterate over the wanted version of a subject, or over all of them, the newest first."""
    yield _fetch_version(registry, subject, wanted, wanted.subject_version)
    if wanted.subject_version == LATEST:
        for version in reversed(registry.fetch_versions(subject)[:-1]):
            yield _fetch_version(registry, subject, wanted, version)


def _fetch_version(
    registry: ConfluentRegistry, subject: str, wanted: PayloadOptions, version: int | str
) -> RegisteredSchema:
    """Return a version of a subject, with what it references."""
    from trilogue.spark.payload.confluent_registry import SERIALIZED
    from trilogue.spark.payload.confluent_schemas import expand_avro, expand_json

    is_protobuf = wanted.format is Format.PROTOBUF
    found = registry.fetch_version(subject, version, SERIALIZED if is_protobuf else "")
    if found is None:
        raise OptionError(
            f"subject {subject}: no version {version} in the registry "
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
