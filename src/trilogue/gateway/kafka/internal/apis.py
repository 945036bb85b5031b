"""The APIs of the internal listener: those of the public ones, and those between brokers.

Every client of it is a cluster principal (gateway/kafka/connection.py), as one with CLUSTER_ACTION
is in a Kafka with ACLs, so the handlers check no access.
"""

from __future__ import annotations

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.gateway.kafka.api_table import MIB, ApiTable, make_spec
from trilogue.gateway.kafka.apis import MANY, TABLE
from trilogue.gateway.kafka.internal import (
    controlled_shutdown,
    leader_and_isr,
    stop_replica,
    update_metadata,
)

CLUSTER, ACTION = ResourceKind.CLUSTER, Operation.CLUSTER_ACTION
CONTROL_BYTES = 64 * MIB  # of requests with all partitions of a cluster

BETWEEN_BROKERS = (
    make_spec(
        4,
        (0, 7),
        leader_and_isr.handle_leader_and_isr,
        CLUSTER,
        ACTION,
        frame_bytes_max=CONTROL_BYTES,
        elements_max=MANY,
    ),
    make_spec(
        5,
        (0, 4),
        stop_replica.handle_stop_replica,
        CLUSTER,
        ACTION,
        frame_bytes_max=CONTROL_BYTES,
        elements_max=MANY,
    ),
    make_spec(
        6,
        (0, 8),
        update_metadata.handle_update_metadata,
        CLUSTER,
        ACTION,
        frame_bytes_max=CONTROL_BYTES,
        elements_max=MANY,
    ),
    make_spec(7, (0, 3), controlled_shutdown.handle_controlled_shutdown, CLUSTER, ACTION),
)
INTERNAL = ApiTable((*TABLE, *BETWEEN_BROKERS))
