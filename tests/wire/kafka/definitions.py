"""Kafka's own message definitions: the JSON inside the kafka-clients jars, version by version.

The jars are looked for in the folders of TRILOGUE_KAFKA_JARS, then where `make jars` puts them,
then in ~/.m2.  3.9.1 still has the versions that 4.x dropped; together they are everything.
"""

from __future__ import annotations

import json
import os
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

from tools.servers.java import jars

from tests.tools import require

RELEASES = ("3.9.1", "4.3.1")
FOLDER = "common/message"
CLIENTS = "kafka-clients"
Structures = dict[str, list[dict[str, Any]]]
ZERO = {
    "bool": False, "string": "", "bytes": b"", "records": None, "uuid": bytes(16), "float64": 0.0,
}  # fmt: skip


class Row(NamedTuple):
    """One field as one version has it; `fields` are those of its structure."""

    name: str
    type: str
    nullable: bool
    tag: int | None
    default: object
    fields: tuple[Row, ...] | None


class Definition(NamedTuple):
    """One message of one release."""

    key: int | None
    first: int
    last: int
    flexible: int | None
    raw: dict[str, Any]


def find_jar(release: str, module: str = CLIENTS) -> Path | None:
    """Return the jar of a module of a release, or None."""
    name = f"{module}-{release}.jar"
    folders = [
        Path(one) for one in os.environ.get("TRILOGUE_KAFKA_JARS", "").split(os.pathsep) if one
    ]
    maven = Path.home() / ".m2/repository/org/apache/kafka" / module / release
    for folder in [*folders, jars(release), maven]:
        if (folder / name).is_file():
            return folder / name
    return None


def require_definitions(release: str, module: str = CLIENTS) -> None:
    """Skip or fail without the jar of a release."""
    require(f"{module}-{release}.jar (TRILOGUE_KAFKA_JARS)", found=find_jar(release, module))


@cache
def open_jar(path: Path) -> ZipFile:
    """Return a jar that stays open: it lists thousands of files."""
    return ZipFile(path)


@cache
def definition(release: str, name: str, module: str = CLIENTS) -> Definition | None:
    """Return one message, such as FetchRequest; None if a release has no version of it."""
    jar = find_jar(release, module)
    assert jar is not None
    try:
        text = open_jar(jar).read(f"{FOLDER}/{name}.json").decode()
    except KeyError:
        return None
    raw = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    if raw["validVersions"] == "none":
        return None
    first, last = span(raw["validVersions"])
    flexible = span(raw["flexibleVersions"])
    return Definition(raw.get("apiKey"), first, last, flexible[0] if flexible else None, raw)


def span(text: str) -> tuple[int, int]:
    """Return `3+`, `2-7`, `4` or `none` as first and last version; none is past the last."""
    if text == "none":
        return (1 << 15, -1)
    if text.endswith("+"):
        return int(text[:-1]), 1 << 15
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def rows(message: Definition, version: int) -> tuple[Row, ...]:
    """Return the fields of one version, in wire order, tagged fields among the others."""
    shared = {one["name"]: one["fields"] for one in message.raw.get("commonStructs", ())}
    return _rows(_spelled_out(message.raw["fields"], shared), version)


def _spelled_out(fields: list[dict[str, Any]], shared: Structures) -> list[dict[str, Any]]:
    """Return fields with their structures inlined, also those in commonStructs."""
    return [
        {**field, "fields": _spelled_out(inner, shared)}
        if (inner := field.get("fields") or shared.get(field["type"].removeprefix("[]")))
        else field
        for field in fields
    ]


def _rows(fields: list[dict[str, Any]], version: int) -> tuple[Row, ...]:
    return tuple(
        _row(field, version)
        for field in fields
        if within(field.get("versions", "none"), version)
        or within(field.get("taggedVersions", "none"), version)
    )


def within(text: str, version: int) -> bool:
    first, last = span(text)
    return first <= version <= last


def _row(field: dict[str, Any], version: int) -> Row:
    return Row(
        name=re.sub(r"(?<!^)(?=[A-Z])", "_", field["name"]).lower(),
        type=field["type"],
        nullable=within(field.get("nullableVersions", "none"), version),
        tag=field["tag"] if within(field.get("taggedVersions", "none"), version) else None,
        default=default(field),
        fields=_rows(field["fields"], version) if "fields" in field else None,
    )


def default(field: dict[str, Any]) -> object:
    """Return Kafka's default, else the type's zero. A structure has the defaults of its fields."""
    kind, text = field["type"], field.get("default")
    if text == "null":
        return None
    if kind.startswith("[]"):
        return []
    if "fields" in field:
        return "structure"
    if text is None or text == "":
        return ZERO.get(kind, 0)
    if kind == "bool":
        return str(text).lower() == "true"
    return text if kind == "string" else int(str(text), 0)
