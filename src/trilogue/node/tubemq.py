"""What the settings of a process mean for its TubeMQ doors."""

from __future__ import annotations

import secrets

from trilogue.broker.credentials import Users
from trilogue.broker.group_rules import KAFKA_SLACK
from trilogue.gateway.tubemq.authentication import Authentication, AuthenticationSettings
from trilogue.gateway.tubemq.settings import TubeSettings
from trilogue.node.settings import Settings
from trilogue.node.storage import wall_clock_ms

KEY_BYTES = 32


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


def tube_authentication() -> Authentication:
    """Who its clients are."""
    key = secrets.token_bytes(KEY_BYTES)
    return Authentication(AuthenticationSettings(), Users(), key=key, now_ms=wall_clock_ms)
