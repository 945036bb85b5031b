"""Options of the Spark source and sink: one table, checked before anything is asked of a server.

The names are those of Spark's own Kafka connector wherever it has one, so that a job moves by
changing its format. An option that we do not know or do not honour is refused, never ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

EARLIEST, LATEST = -2, -1
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

READ_OPTIONS = {
    "kafka.bootstrap.servers": "host:port[,host:port...] of the cluster (required)",
    "subscribe": "topics to read, comma separated",
    "subscribePattern": "regular expression that whole topic names must match",
    "assign": 'partitions to read: {"topic": [0, 1]}',
    "path": "same as subscribe (what load() was given)",
    "startingOffsets": 'earliest, latest or {"topic": {"0": 23, "1": -2}} (-2 earliest, -1 latest)',
    "endingOffsets": "batch only: latest or the same JSON",
    "includeHeaders": "true adds the column headers",
    "columns": "only these columns, comma separated: what is not asked for is never decoded",
    "maxOffsetsPerTrigger": "stream: at most so many offsets a micro-batch, shared by lag",
    "minPartitions": "split partitions so that at least so many tasks run",
    "failOnDataLoss": "true (default) fails when wanted offsets are gone, false goes on after them",
    "fetchBytes": "bytes asked for in one fetch (default 4 MiB)",
}
WRITE_OPTIONS = {
    "kafka.bootstrap.servers": "host:port[,host:port...] of the cluster (required)",
    "topic": "where rows without a topic column go",
    "path": "same as topic (what save() was given)",
    "compression": "none, gzip, snappy, lz4 or zstd (default lz4)",
    "batchBytes": "size at which a batch is sent (default 512 KiB)",
}


SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "outputmode"})
"""Options of Spark's writer itself, which it hands on to every sink."""


class OptionError(ValueError):
    """An option is missing, unknown or has a value that cannot be."""


def _checked(given: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    names = {name.lower(): name for name in known}
    unknown = sorted(name for name in given if name.lower() not in names.keys() | SPARKS_OWN)
    if unknown:
        raise OptionError(f"unknown option {unknown[0]!r}; known: {', '.join(sorted(known))}")
    options = {names[name.lower()]: given[name] for name in given if name.lower() in names}
    if not options.get("kafka.bootstrap.servers"):
        raise OptionError("option 'kafka.bootstrap.servers' is required")
    return options


def _integer(options: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = options.get(name)
    if text is None:
        return default
    if not text.strip().isdigit() or int(text) < 1:
        raise OptionError(f"option {name!r} takes a whole number from 1 on, not {text!r}")
    return int(text)


def _boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name, str(default)).strip().lower()
    if text not in {"true", "false"}:
        raise OptionError(f"option {name!r} takes true or false, not {text!r}")
    return text == "true"


Bounds = int | dict[str, dict[int, int]]


def _bounds(options: Mapping[str, str], name: str, default: int) -> Bounds:
    text = options.get(name)
    if text is None:
        return default
    word = text.strip().lower()
    if word in {"earliest", "latest"}:
        if name == "endingOffsets" and word == "earliest":
            raise OptionError("endingOffsets cannot be earliest")
        return EARLIEST if word == "earliest" else LATEST
    parsed = _json(name, text)
    try:
        bounds = {
            topic: {int(partition): int(offset) for partition, offset in partitions.items()}
            for topic, partitions in parsed.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise OptionError(f"option {name!r} is not of the form {{'topic': {{'0': 23}}}}") from None
    lowest = LATEST if name == "endingOffsets" else EARLIEST
    if any(offset < lowest for parts in bounds.values() for offset in parts.values()):
        raise OptionError(f"option {name!r} has an offset below {lowest}")
    return bounds


def _json(name: str, text: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError as problem:
        raise OptionError(f"option {name!r} is not JSON: {problem}") from None
    if not isinstance(parsed, dict):
        raise OptionError(f"option {name!r} must be a JSON object")
    return parsed


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What to read, checked. Exactly one of `topics`, `pattern` and `assign` is set."""

    servers: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assign: dict[str, tuple[int, ...]] | None = None
    starting: Bounds | None = None
    ending: Bounds = LATEST
    columns: tuple[str, ...] = COLUMNS[:-1]
    max_offsets_per_trigger: int | None = None
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    fetch_bytes: int = 4 << 20

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> ReadOptions:
        """Check the options of a reader; OptionError says what is wrong."""
        options = _checked(given, READ_OPTIONS)
        ways = [
            name for name in ("subscribe", "subscribePattern", "assign", "path") if name in options
        ]
        if len(ways) != 1:
            raise OptionError("give exactly one of subscribe, subscribePattern, assign")
        topics = options.get("subscribe", options.get("path", ""))
        starting = _bounds(options, "startingOffsets", 0) if "startingOffsets" in options else None
        return cls(
            servers=options["kafka.bootstrap.servers"],
            topics=tuple(sorted({name.strip() for name in topics.split(",") if name.strip()})),
            pattern=_pattern(options.get("subscribePattern")),
            assign=_assign(options.get("assign")),
            starting=starting,
            ending=_bounds(options, "endingOffsets", LATEST),
            columns=_columns(options),
            max_offsets_per_trigger=_integer(options, "maxOffsetsPerTrigger", None),
            min_partitions=_integer(options, "minPartitions", None),
            fail_on_data_loss=_boolean(options, "failOnDataLoss", default=True),
            fetch_bytes=_integer(options, "fetchBytes", 4 << 20) or 4 << 20,
        )


def _pattern(text: str | None) -> str | None:
    if text is not None:
        try:
            re.compile(text)
        except re.error as problem:
            raise OptionError(f"subscribePattern: {problem}") from None
    return text


def _assign(text: str | None) -> dict[str, tuple[int, ...]] | None:
    if text is None:
        return None
    try:
        return {
            topic: tuple(sorted({int(number) for number in numbers}))
            for topic, numbers in _json("assign", text).items()
        }
    except (TypeError, ValueError):
        raise OptionError("option 'assign' is not of the form {'topic': [0, 1]}") from None


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    headers = _boolean(options, "includeHeaders", default=False)
    if "columns" not in options:
        return COLUMNS if headers else COLUMNS[:-1]
    wanted = [name.strip().lower() for name in options["columns"].split(",") if name.strip()]
    known = {name.lower(): name for name in COLUMNS}
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        raise OptionError(f"columns: {', '.join(unknown) or 'none'} not among {', '.join(COLUMNS)}")
    if headers:
        wanted.append("headers")
    return tuple(name for name in COLUMNS if name.lower() in wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Where and how to write, checked."""

    servers: str
    topic: str | None = None
    codec: int = CODECS["lz4"]
    batch_bytes: int = 512 << 10

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> WriteOptions:
        """Check the options of a writer; OptionError says what is wrong."""
        options = _checked(given, WRITE_OPTIONS)
        compression = options.get("compression", "lz4").strip().lower()
        if compression not in CODECS:
            raise OptionError(f"compression takes one of {', '.join(CODECS)}, not {compression!r}")
        return cls(
            servers=options["kafka.bootstrap.servers"],
            topic=options.get("topic", options.get("path")),
            codec=CODECS[compression],
            batch_bytes=_integer(options, "batchBytes", 512 << 10) or 512 << 10,
        )
