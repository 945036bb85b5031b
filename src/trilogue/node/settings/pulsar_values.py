"""The settings of the Pulsar gateway, from those of the node."""

from __future__ import annotations

from trilogue.gateway.pulsar.settings import PulsarSettings
from trilogue.node.settings.table import Settings


def pulsar_settings(settings: Settings) -> PulsarSettings:
    """Return the Pulsar gateway's settings."""
    metadata = settings.text("pulsar.broker-entry-metadata")
    return PulsarSettings(
        cluster=settings.text("pulsar.cluster"),
        protocol_min=settings.number("pulsar.min-protocol"),
        proxy_roles=frozenset(settings.text("pulsar.proxy-roles").replace(",", " ").split()),
        keep_alive_s=settings.seconds("pulsar.keep-alive"),
        message_bytes_max=settings.number("pulsar.max-message"),
        adds_broker_timestamp=metadata in {"timestamp", "both"},
        adds_entry_index=metadata in {"index", "both"},
        auto_create_topics=settings.switch("topics.auto-create"),
        key_shared_ring=settings.text("pulsar.key-shared") == "ring",
    )
