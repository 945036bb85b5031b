"""Options of the Spark source, checked before any request."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass

from trilogue.client.kafka.connection import IN_CLEAR
from trilogue.client.kafka.model import READ_COMMITTED, READ_UNCOMMITTED
from trilogue.client.kafka.security import Security
from trilogue.spark.errors import OptionError
from trilogue.spark.options import (
    CONNECTION_OPTIONS,
    check_names,
    parse_boolean,
    parse_integer,
    parse_json,
    parse_seconds,
    parse_security,
    parse_servers,
)
from trilogue.spark.payload.payload_options import PAYLOAD_OPTIONS, PayloadOptions, parse_payloads
from trilogue.spark.protocols.administration import Administration, parse_administration
from trilogue.spark.protocols.positions import format_position, parse_position
from trilogue.spark.protocols.service_url import SERVICE_OPTIONS, ServiceUrl, parse_service_url
from trilogue.spark.segments.segment_place import SegmentPlace, parse_segments

log = logging.getLogger("trilogue.spark")

EARLIEST, LATEST = -2, -1
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")

READ_OPTIONS = {
    **CONNECTION_OPTIONS,
    **SERVICE_OPTIONS,
    "subscribe": "topics to read, comma separated",
    "subscribePattern": "regular expression that whole topic names must match",
    "assign": 'partitions to read: {"topic": [0, 1]}',
    "path": "what load() was given: topics, as with subscribe; or, where it begins with / or "
    "file:///, a data directory whose segments are read without the broker, past its authorizer. "
    "With kafka.bootstrap.servers, what is in no segment yet comes from the broker",
    "objects.url": "path: the object storage that segments were moved to, as the node's setting",
    "objects.endpoint": "of S3-compatible storage that is not Amazon's",
    "objects.region": "of the bucket",
    "objects.credentials-file": "file of the keys, at the same path on each executor",
    "startingOffsets": "earliest (default of a batch), latest (default of a stream; streams only) "
    'or {"topic": {"0": 23, "1": -2}} with every partition (-2 earliest, -1 latest)',
    "endingOffsets": "batch only: latest or the same JSON",
    "startingTimestamp": "from the first record of this time (ms since 1970) in every partition",
    "endingTimestamp": "batch only: up to the first record of this time",
    "startingOffsetsByTimestamp": 'the same for each partition: {"topic": {"0": 1356998400000}}',
    "endingOffsetsByTimestamp": "batch only: the same",
    "startingOffsetsByTimestampStrategy": "error (default) or latest: where no record is that late",
    "includeHeaders": "true adds the column headers",
    **PAYLOAD_OPTIONS,
    "columns": "only these columns, comma separated: the others are never decoded",
    "maxOffsetsPerTrigger": "stream: at most so many offsets a micro-batch, shared by lag",
    "maxBytesPerTrigger": "stream: about so many bytes a micro-batch, as the log has them on disk, "
    "by the mean size of each partition's messages; with url=pulsar:// it needs admin.url",
    "minOffsetsPerTrigger": "stream: wait for so many offsets, or for maxTriggerDelay",
    "maxTriggerDelay": "stream: the longest wait for minOffsetsPerTrigger (default 15m)",
    "minPartitions": "split partitions so that at least so many tasks run",
    "maxRecordsPerPartition": "split partitions so that no task reads more offsets than this",
    "failOnDataLoss": "true (default) fails when wanted offsets are gone, false goes on after them",
    "kafka.isolation.level": "read_committed (default) or read_uncommitted (not from segments)",
    "kafka.group.id": "stream: positions are published under this group when the next micro-batch "
    "begins, for tools that show lag; the checkpoint remains what counts",
    "predefinedSubscription": "the same: a subscription with url=pulsar://, else a group",
    "pushFilters": "batch: true reads only what conditions on topic, partition, offset and the "
    "first timestamp leave; spark.sql.python.filterPushdown.enabled has to be true",
    "fetchBytes": "bytes requested in one fetch (default 4 MiB)",
    "maxDecompressedBytes": "what one compressed record batch may grow to (default 256 MiB)",
    "kafkaConsumer.pollTimeoutMs": "how long a task waits for offsets that are there (120000)",
}

ALIASES = {
    "topic": "subscribe",
    "topics": "subscribe",
    "topicsPattern": "subscribePattern",
    "pollTimeoutMs": "kafkaConsumer.pollTimeoutMs",
    "service.url": "url",
}
"""Names of the connector pulsar-spark, and those that they stand for."""

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
    parsed = parse_json(name, text)
    try:
        bounds = {
            topic: {
                int(partition): parse_position(number) for partition, number in partitions.items()
            }
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


def _check_order(start: Bounds | None, end: Bounds | None) -> None:
    """Raise OptionError where a partition is to start behind its end, as Spark's source does."""
    if not isinstance(start, dict) or not isinstance(end, dict):
        return
    for topic, parts in start.items():
        for number, first in parts.items():
            last = end.get(topic, {}).get(number, LATEST)
            if first > last >= 0:
                raise OptionError(
                    f"{topic}-{number} is to start at {format_position(first)}, "
                    f"which is behind its end, {format_position(last)}"
                )


def _strategy(options: Mapping[str, str]) -> bool:
    name = "startingOffsetsByTimestampStrategy"
    text = options.get(name, "error").strip().lower()
    if text not in {"error", "latest"}:
        raise OptionError(f"option {name!r} takes error or latest, not {text!r}")
    return text == "latest"


def _payloads(options: Mapping[str, str]) -> tuple[PayloadOptions, ...]:
    """Return the options of the payloads of columns that are read."""
    columns = _columns(options)
    payloads = tuple(each for each in parse_payloads(options) if each.column in columns)
    for payload in payloads:
        if payload.corrupt_column.lower() in {name.lower() for name in COLUMNS}:
            raise OptionError("columnNameOfCorruptRecord: a column of the source has this name")
    return payloads


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The checked options of a reader. Exactly one of `topics`, `pattern` and `assign` is set."""

    servers: str
    security: Security = IN_CLEAR
    service: ServiceUrl | None = None
    segments: SegmentPlace | None = None
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assign: dict[str, tuple[int, ...]] | None = None
    starting: Bounds | None = None
    ending: Bounds = LATEST
    starting_ms: Bounds | None = None
    ending_ms: Bounds | None = None
    latest_if_later: bool = False
    columns: tuple[str, ...] = COLUMNS[:-1]
    payloads: tuple[PayloadOptions, ...] = ()
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_s: float = 900.0
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    isolation: int = READ_COMMITTED
    group: str | None = None
    push_filters: bool = False
    fetch_bytes: int = 4 << 20
    decompressed_limit: int = 256 << 20
    patience_ms: int = 120_000
    administration: Administration | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> ReadOptions:
        """Check the options of a reader; OptionError if one is invalid."""
        options = check_names(given, READ_OPTIONS, ALIASES)
        service = parse_service_url(options)
        if isinstance(service, str):
            options["kafka.bootstrap.servers"], service = service, None
        group = _group(options)
        administration = parse_administration(options, service)
        segments = parse_segments(options)
        if segments is not None:
            del options["path"]
        ways = [
            name for name in ("subscribe", "subscribePattern", "assign", "path") if name in options
        ]
        if len(ways) != 1:
            raise OptionError("give exactly one of subscribe, subscribePattern, assign")
        topics = options.get("subscribe", options.get("path", ""))
        starting = _bounds(options, "startingOffsets", 0) if "startingOffsets" in options else None
        made = cls(
            servers=options.get("kafka.bootstrap.servers", "")
            if segments or service
            else parse_servers(options),
            service=service,
            security=parse_security(options),
            segments=segments,
            topics=tuple(sorted({name.strip() for name in topics.split(",") if name.strip()})),
            pattern=_pattern(options.get("subscribePattern")),
            assign=_assign(options.get("assign")),
            starting=starting,
            ending=_bounds(options, "endingOffsets", LATEST),
            starting_ms=_times(options, "starting"),
            ending_ms=_times(options, "ending"),
            latest_if_later=_strategy(options),
            columns=_columns(options),
            payloads=_payloads(options),
            max_offsets_per_trigger=parse_integer(options, "maxOffsetsPerTrigger"),
            max_bytes_per_trigger=parse_integer(options, "maxBytesPerTrigger"),
            min_offsets_per_trigger=parse_integer(options, "minOffsetsPerTrigger"),
            max_trigger_delay_s=parse_seconds(options, "maxTriggerDelay", 900.0),
            min_partitions=parse_integer(options, "minPartitions"),
            max_records_per_partition=parse_integer(options, "maxRecordsPerPartition"),
            fail_on_data_loss=parse_boolean(options, "failOnDataLoss", default=True),
            isolation=_isolation(options),
            group=group,
            push_filters=parse_boolean(options, "pushFilters", default=False),
            fetch_bytes=parse_integer(options, "fetchBytes") or 4 << 20,
            decompressed_limit=parse_integer(options, "maxDecompressedBytes") or 256 << 20,
            patience_ms=parse_integer(options, "kafkaConsumer.pollTimeoutMs") or 120_000,
            administration=administration,
        )
        made._check_dead_letters()
        made._check_segments()
        made._check_service()
        return made

    @property
    def dead_letter_topic(self) -> str | None:
        """Return the topic to which malformed messages are written."""
        return next((each.dead_letter_topic for each in self.payloads), None)

    def _check_dead_letters(self) -> None:
        """Raise OptionError for a dead-letter topic that is itself read, which would never end."""
        name = self.dead_letter_topic
        if name is None:
            return
        if not self.servers:
            raise OptionError("option 'deadLetterTopic' needs 'kafka.bootstrap.servers'")
        is_matched = self.pattern is not None and re.fullmatch(self.pattern, name)
        if name in self.topics or name in (self.assign or {}) or is_matched:
            raise OptionError(f"option 'deadLetterTopic': {name} is read itself")

    def _check_segments(self) -> None:
        """Raise OptionError for options that reads of segments do not obey."""
        if self.segments is None:
            return
        if self.isolation == READ_UNCOMMITTED:
            raise OptionError(
                "only committed messages are read from a data directory: kafka.isolation.level "
                "takes read_committed"
            )
        if self.group is not None and not self.servers:
            raise OptionError("option 'kafka.group.id' needs 'kafka.bootstrap.servers'")

    def _check_service(self) -> None:
        """Raise OptionError for options that reads by other protocols than Kafka's do not obey."""
        if self.service is None:
            return
        refused: dict[str, object] = {
            "path": self.segments,
        }
        if self.service.protocol == "tubemq":  # it lists no topics and finds no times or sizes
            refused |= {
                "maxBytesPerTrigger": self.max_bytes_per_trigger,
                "minPartitions": self.min_partitions,
                "maxRecordsPerPartition": self.max_records_per_partition,
                "predefinedSubscription": self.group,
                "subscribePattern": self.pattern,
                "startingTimestamp": self.starting_ms,
                "endingTimestamp": self.ending_ms,
            }
        elif self.max_bytes_per_trigger is not None and self.administration is None:
            raise OptionError(
                "option 'maxBytesPerTrigger' needs the sizes of topics, and with url=pulsar:// "
                "option 'admin.url' of the HTTP service that has them"
            )
        for name, value in refused.items():
            if value is not None:
                raise OptionError(f"option {name!r} is not for url={self.service.protocol}://…")

    def for_batch(self) -> ReadOptions:
        """Return self; OptionError where nothing would be read.

        Options of streams have no effect on a batch, which reads all there is and moves no
        positions: a job has one set of options for both.
        """
        for_streams = {
            "maxOffsetsPerTrigger": self.max_offsets_per_trigger,
            "minOffsetsPerTrigger": self.min_offsets_per_trigger,
            "maxBytesPerTrigger": self.max_bytes_per_trigger,
            "kafka.group.id": self.group,
        }
        for name, value in for_streams.items():
            if value is not None:
                log.info("spark.option-without-effect option=%s", name)
        if self.starting == LATEST and self.starting_ms is None:
            raise OptionError("startingOffsets cannot be latest for a batch: nothing would be read")
        if self.starting_ms is not None or self.ending_ms is not None:
            _check_order(self.starting_ms, self.ending_ms)
        else:
            _check_order(self.starting, self.ending)
        return self

    def for_stream(self) -> ReadOptions:
        """Return self; OptionError for an option of batches only."""
        if self.ending != LATEST or self.ending_ms is not None:
            raise OptionError("endingOffsets and endingTimestamp are for batch reads only")
        if self.push_filters:
            raise OptionError("option 'pushFilters' is for batch reads only")
        low, high = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        if low is not None and high is not None and low > high:
            raise OptionError("minOffsetsPerTrigger is more than maxOffsetsPerTrigger")
        return self


def _group(options: Mapping[str, str]) -> str | None:
    """Return the group or subscription under which positions are published."""
    names = [name for name in ("kafka.group.id", "predefinedSubscription") if name in options]
    if len({options[name] for name in names}) > 1:
        raise OptionError("give one of kafka.group.id and predefinedSubscription")
    return options[names[0]] if names else None


def _isolation(options: Mapping[str, str]) -> int:
    text = options.get("kafka.isolation.level", "read_committed").strip().lower()
    levels = {"read_committed": READ_COMMITTED, "read_uncommitted": READ_UNCOMMITTED}
    if text not in levels:
        raise OptionError(
            f"option 'kafka.isolation.level' takes {' or '.join(levels)}, not {text!r}"
        )
    return levels[text]


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
    parsed = parse_json("assign", text)
    try:
        return {
            topic: tuple(sorted({int(number) for number in numbers}))
            for topic, numbers in parsed.items()
        }
    except (TypeError, ValueError):
        raise OptionError("option 'assign' is not of the form {'topic': [0, 1]}") from None


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    headers = parse_boolean(options, "includeHeaders", default=False)
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
