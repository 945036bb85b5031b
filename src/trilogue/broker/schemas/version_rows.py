"""Stored versions of schemas, each one setting in meta, by their owner.

    schemas/<topic id, hex>/<version>      of a topic
    subjects/<name, escaped>/<version>     of a subject without a topic (schemas/subjects.py)

A text is {"kind", "data", "properties", "name", "time", "deleted", "hidden", "schema_id"}.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias
from urllib.parse import quote, unquote

import msgspec

from trilogue.broker.schemas.compatibility import Definition
from trilogue.log.errors import CorruptLog

TOPIC_KEY = "schemas/"
SUBJECT_KEY = "subjects/"
ROW_BYTES = 1_024  # of memory that a version takes beside its definition, about


class Schema(msgspec.Struct, frozen=True, omit_defaults=True):
    """One version. `time_ms` is when it was added.

    `deleted`: it marks that all versions before it were deleted. `hidden`: this one was deleted.
    `schema_id` is its id in the schema registry; 0: it has none yet.
    """

    kind: str
    data: bytes = b""
    properties: dict[str, str] = {}
    name: str = ""
    time_ms: int = 0
    deleted: bool = False
    hidden: bool = False
    schema_id: int = 0

    @property
    def definition(self) -> Definition:
        """The part that is compared."""
        return Definition(self.kind, self.data, tuple(self.properties.items()))

    @property
    def size(self) -> int:
        """The bytes of definition and properties."""
        pairs = self.properties.items()
        return len(self.data) + sum(len(key) + len(value) for key, value in pairs)


NumberedSchema: TypeAlias = tuple[int, Schema]  # with its version


class VersionRows:
    """All versions in memory as in meta; `owner` is a key without its version."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[int, Schema]] = {}
        self._users: dict[int, dict[tuple[str, int], None]] = {}  # of an id: owner and version
        self.size_bytes = 0  # of all definitions, with ROW_BYTES for each

    def rows(self, owner: str) -> Mapping[int, Schema]:
        """Return the versions of an owner."""
        return self._rows.get(owner, _NO_ROWS)

    def numbered(self, owners: Sequence[str]) -> list[NumberedSchema]:
        """Return the versions of several owners, in order."""
        return sorted(item for owner in owners for item in self.rows(owner).items())

    def owners(self, prefix: str) -> Iterator[str]:
        """Iterate over the owners whose keys begin with a prefix."""
        return (owner for owner in self._rows if owner.startswith(prefix))

    def users(self, schema_id: int) -> Iterable[tuple[str, int]]:
        """Return the owners and versions that have a schema id."""
        return self._users.get(schema_id, ())

    def apply_setting(self, key: str, text: str | None) -> None:
        """Apply a version from meta; None: it was removed."""
        try:
            owner, _, number = key.rpartition("/")
            version = int(number)
            if owner.startswith(TOPIC_KEY):
                bytes.fromhex(owner.removeprefix(TOPIC_KEY))
            schema = None if text is None else msgspec.json.decode(text, type=Schema)
        except ValueError as error:
            raise CorruptLog(f"what meta keeps of {key} cannot be read") from error
        self.put(owner, version, schema)

    def put(self, owner: str, version: int, schema: Schema | None) -> None:
        """Store a version; None removes it."""
        rows = self._rows.setdefault(owner, {})
        before = rows.pop(version, None)
        if before is not None:
            self.size_bytes -= before.size + ROW_BYTES
        if before is not None and before.schema_id:
            users = self._users[before.schema_id]
            del users[owner, version]
            if not users:
                del self._users[before.schema_id]
        if schema is not None:
            rows[version] = schema
            self.size_bytes += schema.size + ROW_BYTES
            if schema.schema_id:
                self._users.setdefault(schema.schema_id, {})[owner, version] = None
        if not rows:
            del self._rows[owner]

    def remove(self, owner: str) -> None:
        """Remove all versions of an owner."""
        for version in list(self.rows(owner)):
            self.put(owner, version, None)


_NO_ROWS: Mapping[int, Schema] = MappingProxyType({})


def topic_owner(topic_id: bytes) -> str:
    """Return the owner of a topic's versions."""
    return f"{TOPIC_KEY}{topic_id.hex()}"


def subject_owner(subject: str) -> str:
    """Return the owner of the versions of a subject without a topic."""
    return f"{SUBJECT_KEY}{quote(subject, safe='')}"


def subject_of(owner: str) -> str:
    """Return the subject; inverse of `subject_owner`."""
    return unquote(owner.removeprefix(SUBJECT_KEY))


def version_key(owner: str, version: int) -> str:
    """Return the key of a version in meta."""
    return f"{owner}/{version}"


def encode_row(schema: Schema) -> str:
    """Return the text of a version in meta."""
    return msgspec.json.encode(schema).decode()
