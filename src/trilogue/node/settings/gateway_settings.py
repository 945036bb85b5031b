"""The settings of the Pulsar and TubeMQ gateways, from those of the node."""

from __future__ import annotations

from trilogue.broker.errors import InvalidSetting
from trilogue.broker.tubemq.group_rules import KAFKA_SLACK
from trilogue.gateway.pulsar.advertised_listeners import parse_advertised_listeners
from trilogue.gateway.pulsar.settings import PulsarSettings
from trilogue.gateway.tubemq.settings import TubeSettings
from trilogue.node.errors import WRONG_SETTING, StartError
from trilogue.node.settings.table import Settings


def pulsar_settings(settings: Settings) -> PulsarSettings:
    """Return the Pulsar gateway's settings."""
    metadata = settings.text("pulsar.broker-entry-metadata")
    try:
        listeners = parse_advertised_listeners(settings.text("pulsar.advertised-listeners"))
    except InvalidSetting as error:
        raise StartError(f"pulsar.advertised-listeners: {error}", WRONG_SETTING) from error
    return PulsarSettings(
        cluster=settings.text("pulsar.cluster"),
        protocol_min=settings.number("pulsar.min-protocol"),
        proxy_roles=frozenset(settings.text("pulsar.proxy-roles").replace(",", " ").split()),
        advertised_listeners=listeners,
        keep_alive_s=settings.seconds("pulsar.keep-alive"),
        message_bytes_max=settings.number("pulsar.max-message"),
        adds_broker_timestamp=metadata in {"timestamp", "both"},
        adds_entry_index=metadata in {"index", "both"},
        auto_create_topics=settings.switch("topics.auto-create"),
        key_shared_ring=settings.text("pulsar.key-shared") == "ring",
    )


def tube_settings(settings: Settings) -> TubeSettings:
    """Return the TubeMQ gateway's settings."""
    return TubeSettings(
        standby=settings.switch("tubemq.standby"),
        hold_s=settings.seconds("tubemq.hold"),
        producer_timeout_s=settings.seconds("tubemq.producer-timeout"),
        consumer_timeout_s=settings.seconds("tubemq.consumer-timeout"),
        reader_timeout_s=settings.seconds("tubemq.reader-timeout"),
        message_bytes_max=max(1, settings.number("topics.max-entry") - KAFKA_SLACK),
    )
