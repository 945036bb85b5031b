"""Converts the settings of a process into those of the TubeMQ gateway."""

from __future__ import annotations

from trilogue.broker.tubemq.group_rules import KAFKA_SLACK
from trilogue.gateway.tubemq.settings import TubeSettings
from trilogue.node.settings.table import Settings


def tube_settings(settings: Settings) -> TubeSettings:
    """The doors' settings."""
    return TubeSettings(
        standby=settings.switch("tubemq.standby"),
        hold_s=settings.seconds("tubemq.hold"),
        producer_timeout_s=settings.seconds("tubemq.producer-timeout"),
        consumer_timeout_s=settings.seconds("tubemq.consumer-timeout"),
        reader_timeout_s=settings.seconds("tubemq.reader-timeout"),
        message_bytes_max=max(1, settings.number("topics.max-entry") - KAFKA_SLACK),
    )
