"""What a node sets for its Pulsar gateway, and the bounds on what one connection may hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from trilogue.gateway.pulsar.advertised_listeners import NamedAddresses

KIB, MIB = 1 << 10, 1 << 20
PROTOCOL_VERSION: Final = 21  # the newest that the broker speaks
NO_REQUEST: Final = (1 << 64) - 1  # the request id of a command that answers no request


class PulsarSettings(msgspec.Struct, frozen=True):
    """Settings of the Pulsar gateway of one node; bounds are per connection."""

    cluster: str = "standalone"
    protocol_min: int = 0
    proxy_roles: frozenset[str] = frozenset()  # users that connect for clients of their own
    advertised_listeners: Mapping[str, NamedAddresses] = msgspec.field(default_factory=dict)
    keep_alive_s: float = 30.0
    connect_s: float = 30.0  # until CONNECT
    alive_s: float = 5.0  # to answer a PING when another client wants what the connection holds
    message_bytes_max: int = 5 * MIB
    adds_broker_timestamp: bool = False  # broker entry metadata for clients that declare it
    adds_entry_index: bool = False
    auto_create_topics: bool = True
    command_bytes_max: int = 2 * MIB  # of a frame without a payload
    sends_in_flight_max: int = 5_000  # messages that are not durable yet
    requests_in_flight_max: int = 1_000  # requests that are being worked on
    requests_bytes_max: int = 8 * MIB  # of the frames of those requests
    producers_max: int = 10_000
    consumers_max: int = 10_000
    all_members_max: int = 400_000  # producers and consumers of all connections
    metadata_bytes_max: int = 4 * MIB  # metadata of all producers and consumers, where it is long
    watchers_max: int = 32
    all_watchers_max: int = 10_000  # of all connections
    watched_topics_max: int = 1_000_000  # that all watches together list
    key_shared_ring: bool = True  # consistent hashing of keys; else ranges that are halved
