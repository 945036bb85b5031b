"""Every setting of a server: one table, and the values one process runs with.

A value comes from the strongest source that sets it, and keeps its origin:

    default  <  DATA/secure.toml  <  config file  <  environment TRILOGUE_<KEY>  <  --set  <  flag

`sources.py` reads the sources. The reference in docs/reference/settings.md and `trilogue config`
are printed from this table. Unknown keys are refused, not
ignored. Settings of a topic (`retention.ms`, ...) are in broker/settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from trilogue.broker.settings.setting import Setting
from trilogue.broker.settings.values import Kind, Value
from trilogue.node.settings.access_table import ACCESS
from trilogue.node.settings.cluster_table import CLUSTER
from trilogue.node.settings.groups import GROUPS
from trilogue.node.settings.kafka import KAFKA
from trilogue.node.settings.pulsar import PULSAR
from trilogue.node.settings.tubemq import TUBEMQ, TUBEMQ_ACCESS

TUBEMQ_LISTENERS = ("tubemq-master", "tubemq-broker", "tubemq-master-ssl", "tubemq-broker-ssl")
INTERNAL_LISTENER = "internal"
KAFKA_LISTENERS = ("kafka", "kafka-ssl", "kafka-sasl", "kafka-sasl-ssl", INTERNAL_LISTENER)
PULSAR_LISTENERS = ("pulsar", "pulsar-ssl")
HTTP_LISTENERS = ("http", "https")
LISTENERS = ("kafka", "pulsar", *TUBEMQ_LISTENERS[:2], "http")
# Off by default:
SECURED_LISTENERS = (
    *KAFKA_LISTENERS[1:],
    *PULSAR_LISTENERS[1:],
    *TUBEMQ_LISTENERS[2:],
    *HTTP_LISTENERS[1:],
)
ALL_LISTENERS = (*LISTENERS, *SECURED_LISTENERS)

NODES_MAX = 64
FLUSH_CHOICES = ("commit", "interval")
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")


class SettingsError(Exception):
    """A setting that cannot be used; the message names the key, where it came from and why."""


class SettingValue(msgspec.Struct, frozen=True):
    """A value and the source it came from."""

    value: Value
    origin: str


TABLE: tuple[Setting, ...] = (
    Setting(
        "data",
        Kind.PATH,
        "~/.local/share/trilogue",
        "The directory that holds everything: journal, segments, metadata. One process at a time. "
        "Where XDG_DATA_HOME is set the default is `$XDG_DATA_HOME/trilogue`.",
    ),
    Setting(
        "nodes",
        Kind.INTEGER,
        "1",
        "Node processes on this machine, one core each: they share the directory, and each serves "
        "a part of the partitions and groups. Node i listens 100 (i - 1) ports above the first.",
        minimum=1,
        maximum=NODES_MAX,
    ),
    Setting(
        "nodes.silence",
        Kind.DURATION,
        "10s",
        "How long the event loop of one of several nodes may stand still before its process is "
        "killed and started again.",
        minimum=1_000,
    ),
    *CLUSTER,
    Setting(
        "listen.kafka",
        Kind.ADDRESS,
        "127.0.0.1:9092",
        "Where Kafka clients connect; port 0 takes a free one, `off` closes the listener.",
    ),
    *(
        Setting(
            f"listen.{name}",
            Kind.ADDRESS,
            "off",
            f"The same with {what}; `off` without an address.",
        )
        for name, what in (
            ("kafka-ssl", "TLS (Kafka's SSL)"),
            ("kafka-sasl", "a login (SASL_PLAINTEXT)"),
            ("kafka-sasl-ssl", "TLS and a login (SASL_SSL)"),
        )
    ),
    Setting(
        "listen.internal",
        Kind.ADDRESS,
        "off",
        "Where brokers of the cluster connect by Kafka's protocol: followers that copy partitions, "
        "controllers, coordinators. Only `cluster.principals` have access.",
    ),
    Setting(
        "listen.pulsar",
        Kind.ADDRESS,
        "127.0.0.1:6650",
        "Where Pulsar clients connect; port 0 takes a free one, `off` closes the listener.",
    ),
    Setting(
        "listen.pulsar-ssl",
        Kind.ADDRESS,
        "off",
        "The same with TLS, for `pulsar+ssl://`; `off` without an address.",
    ),
    Setting(
        "listen.tubemq-master",
        Kind.ADDRESS,
        "127.0.0.1:8715",
        "Where TubeMQ clients find the master; port 0 takes a free one, `off` closes the listener.",
    ),
    Setting(
        "listen.tubemq-broker",
        Kind.ADDRESS,
        "127.0.0.1:8123",
        "Where TubeMQ clients find the broker; port 0 takes a free one, `off` closes the listener.",
    ),
    *(
        Setting(
            f"listen.{name}-ssl",
            Kind.ADDRESS,
            "off",
            f"The same with TLS{where}; `off` without an address.",
        )
        for name, where in (
            ("tubemq-master", ", whose clients are given `listen.tubemq-broker-ssl`"),
            ("tubemq-broker", ""),
        )
    ),
    Setting(
        "listen.http",
        Kind.ADDRESS,
        "127.0.0.1:8080",
        "Where `/healthz` and `/metrics` are served; port 0 takes a free one, `off` closes the "
        "listener.",
    ),
    Setting(
        "listen.https",
        Kind.ADDRESS,
        "off",
        "The same with TLS, for `https://`; `off` without an address.",
    ),
    Setting(
        "advertise.kafka",
        Kind.ADDRESS,
        "",
        "The address that Kafka clients are given, if it is not the listener's own (containers, "
        "other machines). Port 0 stands for the listener's port.",
    ),
    *(
        Setting(f"advertise.{name}", Kind.ADDRESS, "", f"The same for `listen.{name}`.")
        for name in (
            "kafka-ssl",
            "kafka-sasl",
            "kafka-sasl-ssl",
            "internal",
            "pulsar-ssl",
            "tubemq-broker-ssl",
        )
    ),
    Setting(
        "advertise.pulsar",
        Kind.ADDRESS,
        "",
        "The same for Pulsar clients, whose lookups are answered with it.",
    ),
    Setting(
        "advertise.tubemq-broker",
        Kind.ADDRESS,
        "",
        "The same for TubeMQ clients, which get it from the master; a name or an IPv4 address.",
    ),
    Setting(
        "insecure",
        Kind.SWITCH,
        "false",
        "Allow a listener without TLS and authentication on an address that other machines reach.",
    ),
    Setting(
        "salvage",
        Kind.SWITCH,
        "false",
        "Start although acknowledged data is damaged: continue after what cannot be read, "
        "and log what is lost.",
    ),
    Setting(
        "ready-file",
        Kind.PATH,
        "",
        "A file that is written when all listeners are open: the process id and the addresses, as "
        "JSON. It is removed at the end.",
    ),
    Setting(
        "topics.auto-create",
        Kind.SWITCH,
        "true",
        "Create a topic when a client that requests this first names it.",
    ),
    Setting(
        "topics.default-partitions",
        Kind.INTEGER,
        "1",
        "Partitions of a topic that is created without a number of partitions.",
        minimum=1,
        maximum=10_000,
    ),
    Setting(
        "topics.retention",
        Kind.DURATION,
        "7d",
        "How long a message is kept where its topic sets no retention; -1 keeps it for ever. "
        "Counted from the time it was appended.",
        minimum=-1,
    ),
    Setting(
        "topics.max-entry",
        Kind.SIZE,
        "1048588",
        "The largest entry (a Kafka record batch, as sent) that a topic accepts unless it sets "
        "max.message.bytes; 1 MiB and Kafka's 12 bytes before it.",
        minimum=1 << 10,
        maximum=16 << 20,
    ),
    Setting(
        "topics.flush",
        Kind.TEXT,
        "commit",
        "When a message is acknowledged where its topic does not set `flush`: `commit`, when it is "
        "on disk; `interval`, when it is in memory, so that a crash may lose the last ones.",
        choices=FLUSH_CHOICES,
    ),
    Setting(
        "tail.limit",
        Kind.SIZE,
        "256MiB",
        "Bytes not yet in a segment that are kept in memory; at 80 % of it producers wait.",
        minimum=1 << 20,
    ),
    Setting(
        "tail.entries",
        Kind.INTEGER,
        "500000",
        "Entries not yet in a segment that are kept in memory; at 80 % of it producers wait.",
        minimum=1_000,
    ),
    Setting(
        "journal.interval",
        Kind.DURATION,
        "10ms",
        "How long messages of topics with `flush=interval` may wait for others before they are "
        "written; readers see them then.",
        minimum=1,
        maximum=100,
    ),
    Setting(
        "journal.file-size",
        Kind.SIZE,
        "64MiB",
        "A journal file is closed and flushed to a segment when it has grown to this.",
        minimum=64 << 10,
        maximum=1 << 30,
    ),
    Setting(
        "journal.file-entries",
        Kind.INTEGER,
        "100000",
        "A journal file is closed when it holds this many entries.",
        minimum=100,
        maximum=10_000_000,
    ),
    Setting(
        "journal.file-age",
        Kind.DURATION,
        "60s",
        "A journal file that holds data is closed after this long.",
        minimum=100,
    ),
    Setting(
        "flush.rate",
        Kind.SIZE,
        "64MiB",
        "Bytes a second that a flush to segments may write while the tail is less than half full, "
        "so that it does not get in the journal's way, or three times what comes in if that is "
        "more; 0 = as fast as it goes.",
        minimum=0,
    ),
    Setting(
        "merge.rate",
        Kind.SIZE,
        "64MiB",
        "Bytes a second that a merge of segments may write, or twice what flushes bring if that is "
        "more, and a compaction may read; 0 = as fast as it goes. With more than twelve unmerged "
        "segments a merge is as fast.",
        minimum=0,
    ),
    Setting(
        "compaction.check-every",
        Kind.DURATION,
        "15s",
        "How often the server looks for compacted topics that are due.",
        minimum=100,
    ),
    Setting(
        "compaction.memory",
        Kind.SIZE,
        "64MiB",
        "Memory for the keys of a partition that is compacted, 32 to 64 bytes each; where they are "
        "more it is done in several rounds.",
        minimum=64 << 10,
        maximum=16 << 30,
    ),
    Setting(
        "conversion.cache",
        Kind.SIZE,
        "32MiB",
        "Memory for messages near the end of partitions that were converted for clients of another "
        "protocol, so that it is done once for all of them; 0 = none.",
        minimum=0,
    ),
    Setting(
        "disk.min-free",
        Kind.SIZE,
        "128MiB",
        "With less free space than this on the disk producers are refused; consumers are served.",
        minimum=0,
    ),
    Setting(
        "disk.reserve",
        Kind.SIZE,
        "64MiB",
        "Room that is kept by a file and given up when the disk is full, so that deletions, "
        "retention and flushes still work; 0 = none.",
        minimum=0,
    ),
    Setting(
        "retention.check-every",
        Kind.DURATION,
        "60s",
        "How often the server looks for expired messages.",
        minimum=100,
    ),
    Setting(
        "subscriptions.check-every",
        Kind.DURATION,
        "10s",
        "How often the server looks whether what subscriptions have not acked is too old (message "
        "TTL) or too much (backlog quota).",
        minimum=100,
    ),
    Setting(
        "segments.grace",
        Kind.DURATION,
        "60s",
        "How long a segment file without live data stays on disk for readers that still use it.",
        minimum=0,
    ),
    Setting(
        "objects.url",
        Kind.TEXT,
        "",
        "Where merged segments go: `s3://BUCKET/PREFIX`, or `file:///PATH` for a directory that "
        "exists; needs the extra `s3`. Without it they stay in the data directory. Keys for S3 "
        "come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, from `objects.credentials-file`, "
        "or from the role of the machine.",
    ),
    Setting(
        "objects.endpoint",
        Kind.TEXT,
        "",
        "The address of S3-compatible storage that is not Amazon's: `https://HOST:PORT`.",
    ),
    Setting(
        "objects.region",
        Kind.TEXT,
        "",
        "The region of the bucket; without it that of AWS_REGION.",
    ),
    Setting(
        "objects.credentials-file",
        Kind.PATH,
        "",
        "A file with keys for S3 like `~/.aws/credentials`, section `default`, readable by its "
        "owner only. It is read again every five minutes.",
    ),
    Setting(
        "objects.cache-size",
        Kind.SIZE,
        "64MiB",
        "Memory for data read from object storage; unused data is dropped after a minute.",
        minimum=0,
    ),
    Setting(
        "objects.move-after",
        Kind.DURATION,
        "1h",
        "How old a merged segment below 64 MiB, or a large one that rests before its merge, has "
        "to be before it is moved to object storage: it is likely to be merged. Larger ones are "
        "moved right after their merge.",
        minimum=0,
    ),
    Setting(
        "objects.keep-local",
        Kind.DURATION,
        "0",
        "How long the file of a segment stays, and is read, after the segment was moved to object "
        "storage; at least segments.grace. -1 keeps it as long as the segment.",
        minimum=-1,
    ),
    Setting(
        "connections.limit",
        Kind.INTEGER,
        "10000",
        "Connections of one listener at a time; further ones are closed at once.",
        minimum=1,
        maximum=1_000_000,
    ),
    Setting(
        "connections.per-address",
        Kind.INTEGER,
        "5000",
        "Connections of one listener from one address at a time.",
        minimum=1,
        maximum=1_000_000,
    ),
    Setting(
        "connections.unsent-memory",
        Kind.SIZE,
        "256MiB",
        "How much memory may be held by messages that clients of any protocol have requested and "
        "not read yet, reads under way included. Reads of segments reserve it before they start, "
        "and wait while there is none; then clients that do not read are disconnected.",
        minimum=1 << 20,
    ),
    Setting(
        "connections.received-memory",
        Kind.SIZE,
        "160MiB",
        "How much memory may be held by requests that have been received in part, beyond 1 MiB "
        "for each connection, and by batches that are decompressed to be validated. A connection "
        "whose request is larger waits while there is none; "
        "then clients that do not complete theirs are disconnected.",
        minimum=1 << 20,
    ),
    Setting(
        "quotas.burst",
        Kind.DURATION,
        "1s",
        "How much a quota allows at once after a pause: what its rate brings in this time.",
        minimum=100,
        maximum=3_600_000,
    ),
    Setting(
        "frames.limit",
        Kind.SIZE,
        "100MiB",
        "The largest request a Kafka client may send.",
        minimum=64 << 10,
        maximum=1 << 30,
    ),
    *ACCESS,
    *GROUPS,
    *KAFKA,
    *PULSAR,
    *TUBEMQ,
    *TUBEMQ_ACCESS,
    Setting(
        "shutdown.limit",
        Kind.DURATION,
        "20s",
        "How long SIGTERM may take: requests in flight are answered and the tail is flushed; what "
        "is not done by then is left to the next start, which loses nothing.",
        minimum=0,
        maximum=3_600_000,
    ),
    Setting(
        "log.level",
        Kind.TEXT,
        "info",
        "The least serious log lines to write.",
        choices=LOG_LEVELS,
    ),
    Setting(
        "log.format",
        Kind.TEXT,
        "text",
        "How log lines look: `key=value` for people, one JSON object a line for machines.",
        choices=LOG_FORMATS,
    ),
)


def environment_name(key: str) -> str:
    """Return the variable that sets a setting: TRILOGUE_ and the key in capitals."""
    return "TRILOGUE_" + key.upper().replace(".", "_").replace("-", "_")


BY_KEY: Mapping[str, Setting] = {row.key: row for row in TABLE}
BY_ENVIRONMENT: Mapping[str, Setting] = {environment_name(row.key): row for row in TABLE}
assert len(BY_ENVIRONMENT) == len(TABLE), "two keys share one environment variable"


class Settings:
    """The values of one process, read by key and type; it has every key of the table."""

    def __init__(self, given: Mapping[str, SettingValue], config_file: str = "") -> None:
        assert set(given) == set(BY_KEY), "every setting has a value"
        self._given = dict(given)
        self.config_file = config_file  # the file that was read; "" if there was none

    def __iter__(self) -> Iterator[tuple[Setting, SettingValue]]:
        for row in TABLE:
            yield row, self._given[row.key]

    def replaced(self, changes: Mapping[str, Value], origin: str) -> Settings:
        """Return settings with other values for some keys."""
        given = {key: SettingValue(value, origin) for key, value in changes.items()}
        return Settings(self._given | given, self.config_file)

    def taken_from(self, other: Settings, keys: Iterable[str]) -> Settings:
        """Return settings with the values that other settings have for some keys."""
        given = {key: other._given[key] for key in keys}
        return Settings(self._given | given, other.config_file)

    def origin(self, key: str) -> str:
        """Return the origin of a value: `default`, `file ...`, `environment ...`, `--...`."""
        return self._given[key].origin

    def number(self, key: str) -> int:
        """Return a whole number: a count, bytes of a size, milliseconds of a duration."""
        value = self._given[key].value
        assert isinstance(value, int), key
        assert not isinstance(value, bool), key
        return value

    def seconds(self, key: str) -> float:
        """Return a duration in seconds."""
        assert BY_KEY[key].kind is Kind.DURATION, key
        return self.number(key) / 1000

    def switch(self, key: str) -> bool:
        """Return a boolean."""
        value = self._given[key].value
        assert isinstance(value, bool), key
        return value

    def text(self, key: str) -> str:
        """Return a text; "" if unset."""
        value = self._given[key].value
        assert value is None or isinstance(value, str), key
        return value or ""
