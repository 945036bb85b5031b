"""Rows of the table of settings that are about the Kafka door alone."""

from __future__ import annotations

from trilogue.node.setting import Setting
from trilogue.node.values import Kind

KAFKA: tuple[Setting, ...] = (
    Setting(
        "kafka.fetch-sessions",
        Kind.INTEGER,
        "1000",
        "How many fetch sessions (KIP-227) there may be: readers that say once what they read. "
        "Who finds no room says it with each fetch. 0: none.",
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
    Setting(
        "kafka.unsent-memory",
        Kind.SIZE,
        "512MiB",
        "How much of answers to fetches may wait for clients that do not read them. Beyond it a "
        "fetch brings 64 KiB, or one batch.",
        minimum=1 << 20,
    ),
)
