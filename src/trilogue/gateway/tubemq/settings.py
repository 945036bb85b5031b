"""Settings of the TubeMQ gateway, and the limits on what its clients may use."""

from __future__ import annotations

import msgspec

KIB, MIB = 1 << 10, 1 << 20


class TubeSettings(msgspec.Struct, frozen=True):
    """Settings of the master and the broker."""

    standby: bool = False  # the master answers that another one is active
    hold_s: float = 3.0  # of a get at the end of the data; 0: answered at once, as by real brokers
    producer_timeout_s: float = 45.0  # without a heartbeat
    consumer_timeout_s: float = 30.0  # at the master
    reader_timeout_s: float = 30.0  # a partition's registration at the broker
    message_bytes_max: int = 1 * MIB  # of topics without a setting of their own
    frame_bytes_max: int = 17 * MIB  # of a request to the broker: the largest message, and more
    request_bytes_max: int = 2 * MIB  # of any other request
    sends_in_flight_max: int = 10_000  # of a connection, not durable yet
    requests_in_flight_max: int = 10_000  # of a connection, in work or held
    requests_bytes_max: int = 16 * MIB  # of their frames
    producers_max: int = 100_000
    client_id_max: int = 1_024  # characters, as a real master
    topics_max: int = 1_024  # of a producer
