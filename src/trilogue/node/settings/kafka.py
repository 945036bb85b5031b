"""Settings of the Kafka gateway."""

from __future__ import annotations

from trilogue.broker.settings.setting import Setting
from trilogue.broker.settings.values import Kind

KAFKA: tuple[Setting, ...] = (
    Setting(
        "kafka.accept-replication",
        Kind.SWITCH,
        "false",
        "Accept a replication factor or `min.insync.replicas` above 1 as 1, with a warning in the "
        "log, for programs that cannot be configured. Off: such requests are refused. Either way "
        "there is one copy, and Kafka's requests report one.",
    ),
    Setting(
        "kafka.fetch-sessions",
        Kind.INTEGER,
        "1000",
        "The most fetch sessions (KIP-227), whose readers send their partitions once. Readers "
        "without a session send them with each fetch. 0: none.",
        minimum=0,
        maximum=10_000,
    ),
    Setting(
        "kafka.fetch-sessions-memory",
        Kind.SIZE,
        "256MiB",
        "How much memory all fetch sessions together may take.",
        minimum=1 << 10,
    ),
)
