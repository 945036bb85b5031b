"""Settings of the TubeMQ gateway."""

from __future__ import annotations

from trilogue.broker.settings.setting import Setting
from trilogue.broker.settings.values import Kind

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
        "Be a standby: the master answers every TubeMQ client that another master is active.",
    ),
    Setting(
        "tubemq.producer-timeout",
        Kind.DURATION,
        "45s",
        "How long the master keeps a TubeMQ producer that sends no heartbeat.",
        minimum=1_000,
        maximum=86_400_000,
    ),
    Setting(
        "tubemq.consumer-timeout",
        Kind.DURATION,
        "30s",
        "How long a TubeMQ consumer that sends no heartbeat keeps its partitions at the master.",
        minimum=1_000,
        maximum=86_400_000,
    ),
    Setting(
        "tubemq.reader-timeout",
        Kind.DURATION,
        "30s",
        "How long the broker reserves a partition for a consumer of a TubeMQ group that sends "
        "nothing.",
        minimum=1_000,
        maximum=86_400_000,
    ),
)
