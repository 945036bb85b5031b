"""Settings of the Pulsar gateway."""

from __future__ import annotations

from trilogue.broker.settings.setting import Setting
from trilogue.broker.settings.values import Kind

KEY_CHOICES = ("ring", "halves")
ENTRY_METADATA_CHOICES = ("off", "timestamp", "index", "both")

PULSAR: tuple[Setting, ...] = (
    Setting(
        "pulsar.cluster",
        Kind.TEXT,
        "standalone",
        "The name of the cluster that Pulsar clients and administrators see; names given to "
        "producers begin with it.",
    ),
    Setting(
        "pulsar.min-protocol",
        Kind.INTEGER,
        "0",
        "The oldest version of Pulsar's protocol that a client may speak.",
        minimum=0,
        maximum=21,
    ),
    Setting(
        "pulsar.proxy-roles",
        Kind.TEXT,
        "",
        "Users of Pulsar proxies, with commas (Pulsar's proxyRoles). They connect for a client "
        "that they name as the original principal; both need the permission. Any other user that "
        "names one is refused, where `access.authenticate` is on.",
    ),
    Setting(
        "pulsar.advertised-listeners",
        Kind.TEXT,
        "",
        "More addresses of this node, with commas, each `name:pulsar://host:port` or "
        "`name:pulsar+ssl://host:port` (Pulsar's advertisedListeners). A client that names one in "
        "its lookups is sent there.",
    ),
    Setting(
        "pulsar.keep-alive",
        Kind.DURATION,
        "30s",
        "How often the broker sends a PING to a silent Pulsar client; after twice as long it "
        "closes the connection.",
        minimum=1_000,
        maximum=3_600_000,
    ),
    Setting(
        "pulsar.max-message",
        Kind.SIZE,
        "5MiB",
        "The largest message or batch that Pulsar clients may send; they are given this limit.",
        minimum=64 << 10,
        maximum=15 << 20,
    ),
    Setting(
        "pulsar.broker-entry-metadata",
        Kind.TEXT,
        "off",
        "The metadata of each entry for Pulsar clients that request it: its time of arrival, the "
        "index of its last message, or both.",
        choices=ENTRY_METADATA_CHOICES,
    ),
    Setting(
        "pulsar.key-shared",
        Kind.TEXT,
        "ring",
        "How keys are shared out among the consumers of a Key_Shared subscription that bring no "
        "ranges: by consistent hashing, or each new consumer takes half of the largest range.",
        choices=KEY_CHOICES,
    ),
)
