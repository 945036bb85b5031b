"""Rows of the table of settings that are about the TubeMQ doors alone."""

from __future__ import annotations

from trilogue.node.setting import Setting
from trilogue.node.values import Kind

TUBEMQ: tuple[Setting, ...] = (
    Setting(
        "tubemq.hold",
        Kind.DURATION,
        "3s",
        "How long a TubeMQ consumer's request at the end of the data waits for a message, at most; "
        "0 = answered at once, as a real broker does, after which the client sleeps.",
        minimum=0,
        maximum=8_000,
    ),
    Setting(
        "tubemq.standby",
        Kind.SWITCH,
        "false",
        "Be a standby: the master answers every TubeMQ client that another master is at work.",
    ),
    Setting(
        "tubemq.producer-timeout",
        Kind.DURATION,
        "45s",
        "How long the master knows a TubeMQ producer that it does not hear of.",
        minimum=1_000,
        maximum=86_400_000,
    ),
    Setting(
        "tubemq.consumer-timeout",
        Kind.DURATION,
        "30s",
        "How long the master leaves its partitions to a TubeMQ consumer that it does not hear of.",
        minimum=1_000,
        maximum=86_400_000,
    ),
    Setting(
        "tubemq.reader-timeout",
        Kind.DURATION,
        "30s",
        "How long the broker lets nobody else of a TubeMQ group read a partition whose consumer it "
        "does not hear of.",
        minimum=1_000,
        maximum=86_400_000,
    ),
)
