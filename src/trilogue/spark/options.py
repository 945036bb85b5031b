"""Options of the Spark source and sink: one table, checked before any request.

Names are those of Spark's Kafka connector where it has one, so that a job moves by changing its
format. An option that is unknown or has no effect here is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trilogue.client.errors import InvalidOption
from trilogue.client.kafka.client_config import JAAS, KEY_STORE, NAMES, REFUSED, convert_key
from trilogue.client.kafka.connection import IN_CLEAR
from trilogue.client.kafka.options import ClientOptions
from trilogue.client.kafka.security import Security
from trilogue.client.options import build_options
from trilogue.spark.errors import OptionError

EARLIEST, LATEST = -2, -1
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

KAFKA = "kafka."
CONNECTION_OPTIONS = {
    "kafka.bootstrap.servers": "host:port[,host:port...] of the cluster (required)",
    "kafka.security.protocol": "PLAINTEXT (default), SSL, SASL_PLAINTEXT or SASL_SSL",
    "kafka.sasl.mechanism": "PLAIN (default), SCRAM-SHA-256 or SCRAM-SHA-512",
    "kafka.sasl.jaas.config": "as Java reads it: its username and password log in",
    "kafka.sasl.username": "the user, in place of kafka.sasl.jaas.config",
    "kafka.sasl.password": "the user's password",
    "kafka.ssl.truststore.location": "PEM file of the authorities (also kafka.ssl.ca.location), "
    "at the same path on the driver and each executor",
    "kafka.ssl.keystore.location": "PEM file of the client's certificate and key",
    "kafka.ssl.certificate.location": "PEM file of the client's certificate",
    "kafka.ssl.key.location": "PEM file of its key",
    "kafka.ssl.key.password": "what the key is encrypted with",
    "kafka.ssl.endpoint.identification.algorithm": "https (default), or none: any server's name",
}
READ_OPTIONS = {
    **CONNECTION_OPTIONS,
    "subscribe": "topics to read, comma separated",
    "subscribePattern": "regular expression that whole topic names must match",
    "assign": 'partitions to read: {"topic": [0, 1]}',
    "path": "same as subscribe (what load() was given)",
    "startingOffsets": "earliest (default of a batch), latest (default of a stream; streams only) "
    'or {"topic": {"0": 23, "1": -2}} with every partition (-2 earliest, -1 latest)',
    "endingOffsets": "batch only: latest or the same JSON",
    "startingTimestamp": "from the first record of this time (ms since 1970) in every partition",
    "endingTimestamp": "batch only: up to the first record of this time",
    "startingOffsetsByTimestamp": 'the same for each partition: {"topic": {"0": 1356998400000}}',
    "endingOffsetsByTimestamp": "batch only: the same",
    "startingOffsetsByTimestampStrategy": "error (default) or latest: where no record is that late",
    "includeHeaders": "true adds the column headers",
    "columns": "only these columns, comma separated: the others are never decoded",
    "maxOffsetsPerTrigger": "stream: at most so many offsets a micro-batch, shared by lag",
    "minOffsetsPerTrigger": "stream: wait for so many offsets, or for maxTriggerDelay",
    "maxTriggerDelay": "stream: the longest wait for minOffsetsPerTrigger (default 15m)",
    "minPartitions": "split partitions so that at least so many tasks run",
    "maxRecordsPerPartition": "split partitions so that no task reads more offsets than this",
    "failOnDataLoss": "true (default) fails when wanted offsets are gone, false goes on after them",
    "fetchBytes": "bytes requested in one fetch (default 4 MiB)",
    "maxDecompressedBytes": "what one compressed record batch may grow to (default 256 MiB)",
    "kafkaConsumer.pollTimeoutMs": "how long a task waits for offsets that are there (120000)",
}
WRITE_OPTIONS = {
    **CONNECTION_OPTIONS,
    "topic": "where rows without a topic column go",
    "path": "same as topic (what save() was given)",
    "compression": "none, gzip, snappy, lz4 or zstd (default lz4)",
    "batchBytes": "size at which a batch is sent (default 512 KiB)",
}


SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "outputmode"})
"""Options of Spark's writer itself, which it hands on to every sink."""


_CLIENT_KEYS = {
    f"{KAFKA}{key}": f"{KAFKA}{key}" for key in {*NAMES, *REFUSED, JAAS, KEY_STORE} - {"client.id"}
}
"""All keys of Kafka's clients that are obeyed, or refused with a reason."""


def _security(options: Mapping[str, str]) -> Security:
    """Return how connections are made; OptionError, which has no secrets."""
    found: dict[str, str] = {}
    try:
        for name, value in options.items():
            found |= convert_key(name.removeprefix(KAFKA), value.strip()) or {}
        return build_options(ClientOptions, found).security
    except InvalidOption as error:
        raise OptionError(f"options {KAFKA}…: {error}") from None


def _checked(given: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    names = {name.lower(): name for name in known} | _CLIENT_KEYS
    unknown = sorted(name for name in given if name.lower() not in names.keys() | SPARKS_OWN)
    if unknown:
        raise OptionError(f"unknown option {unknown[0]!r}; known: {', '.join(sorted(known))}")
    options = {names[name.lower()]: given[name] for name in given if name.lower() in names}
    if not options.get("kafka.bootstrap.servers"):
        raise OptionError("option 'kafka.bootstrap.servers' is required")
    return options


def _integer(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.strip().isdigit() or int(text) < 1:
        raise OptionError(f"option {name!r} takes a whole number from 1 on, not {text!r}")
    return int(text)


_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


def _seconds(options: Mapping[str, str], name: str, default: float) -> float:
    """Return seconds of a duration in Spark's form: 90s, 15m, 1h; a bare number is milliseconds."""
    text = options.get(name)
    if text is None:
        return default
    found = re.fullmatch(r"(\d+)\s*(us|ms|s|m|min|h|d|)", text.strip().lower())
    if found is None:
        raise OptionError(f"option {name!r} takes a duration such as 30s or 15m, not {text!r}")
    return int(found[1]) * _UNITS[found[2] or "ms"]


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
    return _by_partition(name, text, LATEST if name == "endingOffsets" else EARLIEST)


def _by_partition(name: str, text: str, lowest: int) -> dict[str, dict[int, int]]:
    parsed = _json(name, text)
    try:
        bounds = {
            topic: {int(partition): int(number) for partition, number in partitions.items()}
            for topic, partitions in parsed.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise OptionError(f"option {name!r} is not of the form {{'topic': {{'0': 23}}}}") from None
    if any(number < lowest for parts in bounds.values() for number in parts.values()):
        raise OptionError(f"option {name!r} has a number below {lowest}")
    return bounds


def _times(options: Mapping[str, str], which: str) -> Bounds | None:
    """Return times, which win over offsets; one time for all wins, as in Spark's source."""
    one = options.get(f"{which}Timestamp")
    if one is not None:
        if not one.strip().isdigit():
            raise OptionError(f"option '{which}Timestamp' takes milliseconds, not {one!r}")
        return int(one)
    name = f"{which}OffsetsByTimestamp"
    return _by_partition(name, options[name], 0) if name in options else None


def _strategy(options: Mapping[str, str]) -> bool:
    name = "startingOffsetsByTimestampStrategy"
    text = options.get(name, "error").strip().lower()
    if text not in {"error", "latest"}:
        raise OptionError(f"option {name!r} takes error or latest, not {text!r}")
    return text == "latest"


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
    """The checked options of a reader. Exactly one of `topics`, `pattern` and `assign` is set."""

    servers: str
    security: Security = IN_CLEAR
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assign: dict[str, tuple[int, ...]] | None = None
    starting: Bounds | None = None
    ending: Bounds = LATEST
    starting_ms: Bounds | None = None
    ending_ms: Bounds | None = None
    latest_if_later: bool = False
    columns: tuple[str, ...] = COLUMNS[:-1]
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_s: float = 900.0
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    fetch_bytes: int = 4 << 20
    decompressed_limit: int = 256 << 20
    patience_ms: int = 120_000

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> ReadOptions:
        """Check the options of a reader; OptionError if one is invalid."""
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
            security=_security(options),
            topics=tuple(sorted({name.strip() for name in topics.split(",") if name.strip()})),
            pattern=_pattern(options.get("subscribePattern")),
            assign=_assign(options.get("assign")),
            starting=starting,
            ending=_bounds(options, "endingOffsets", LATEST),
            starting_ms=_times(options, "starting"),
            ending_ms=_times(options, "ending"),
            latest_if_later=_strategy(options),
            columns=_columns(options),
            max_offsets_per_trigger=_integer(options, "maxOffsetsPerTrigger"),
            min_offsets_per_trigger=_integer(options, "minOffsetsPerTrigger"),
            max_trigger_delay_s=_seconds(options, "maxTriggerDelay", 900.0),
            min_partitions=_integer(options, "minPartitions"),
            max_records_per_partition=_integer(options, "maxRecordsPerPartition"),
            fail_on_data_loss=_boolean(options, "failOnDataLoss", default=True),
            fetch_bytes=_integer(options, "fetchBytes") or 4 << 20,
            decompressed_limit=_integer(options, "maxDecompressedBytes") or 256 << 20,
            patience_ms=_integer(options, "kafkaConsumer.pollTimeoutMs") or 120_000,
        )

    def for_batch(self) -> ReadOptions:
        """Return self; OptionError for an option of streams only."""
        if self.max_offsets_per_trigger or self.min_offsets_per_trigger:
            raise OptionError("maxOffsetsPerTrigger and minOffsetsPerTrigger are for streams only")
        if self.starting == LATEST and self.starting_ms is None:
            raise OptionError("startingOffsets cannot be latest for a batch: nothing would be read")
        return self

    def for_stream(self) -> ReadOptions:
        """Return self; OptionError for an option of batches only."""
        if self.ending != LATEST or self.ending_ms is not None:
            raise OptionError("endingOffsets and endingTimestamp are for batch reads only")
        low, high = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        if low is not None and high is not None and low > high:
            raise OptionError("minOffsetsPerTrigger is more than maxOffsetsPerTrigger")
        return self


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
    parsed = _json("assign", text)
    try:
        return {
            topic: tuple(sorted({int(number) for number in numbers}))
            for topic, numbers in parsed.items()
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
    """The checked options of a writer."""

    servers: str
    security: Security = IN_CLEAR
    topic: str | None = None
    codec: int = CODECS["lz4"]
    batch_bytes: int = 512 << 10

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> WriteOptions:
        """Check the options of a writer; OptionError if one is invalid."""
        options = _checked(given, WRITE_OPTIONS)
        compression = options.get("compression", "lz4").strip().lower()
        if compression not in CODECS:
            raise OptionError(f"compression takes one of {', '.join(CODECS)}, not {compression!r}")
        return cls(
            servers=options["kafka.bootstrap.servers"],
            security=_security(options),
            topic=options.get("topic", options.get("path")),
            codec=CODECS[compression],
            batch_bytes=_integer(options, "batchBytes") or 512 << 10,
        )
