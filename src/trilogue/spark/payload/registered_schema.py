"""The schema of topics in a registry, Pulsar's or Confluent's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from trilogue.spark.errors import OptionError


class RegisteredSchema(NamedTuple):
    """The type as the registry names it, the definition, and of Protobuf the message."""

    kind: str
    definition: str | bytes
    message: str = ""


def find_common_schema(
    names: Iterable[str], fetch: Callable[[str], RegisteredSchema]
) -> RegisteredSchema:
    """Return the schema that all topics or subjects have; OptionError for none, or several."""
    found: dict[RegisteredSchema, str] = {}
    for name in names:
        found.setdefault(fetch(name), name)
        if len(found) > 1:
            first, second = found.values()
            raise OptionError(
                f"{first} and {second} have two schemas: read their topics one by one, or give "
                "option 'payloadSchema'"
            )
    if not found:
        raise OptionError("payload: no topic to take the schema of; give option 'payloadSchema'")
    return next(iter(found))


def choose_version(
    versions: Iterable[RegisteredSchema], fits: Callable[[RegisteredSchema], bool]
) -> RegisteredSchema:
    """Return the first version that fits; the first of all where none does."""
    first: RegisteredSchema | None = None
    for version in versions:
        if fits(version):
            return version
        first = first or version
    assert first is not None
    return first
