"""The APIs of the internal listener: those of the public ones, and those between brokers.

Every client of it is a cluster principal (gateway/kafka/connection.py), as one with CLUSTER_ACTION
is in a Kafka with ACLs, so the handlers check no access.
"""

from __future__ import annotations

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.gateway.kafka.api_table import MIB, ApiSpec, ApiTable
from trilogue.gateway.kafka.apis import MANY, TABLE

CLUSTER, ACTION = ResourceKind.CLUSTER, Operation.CLUSTER_ACTION
CONTROL_BYTES = 64 * MIB  # of requests with all partitions of a cluster

BETWEEN_BROKERS = (
    ApiSpec(
        4,
        (0, 7),
        "internal.leader_and_isr:handle_leader_and_isr",
        CLUSTER,
        ACTION,
        frame_bytes_max=CONTROL_BYTES,
        elements_max=MANY,
    ),
    ApiSpec(
        5,
        (0, 4),
        "internal.stop_replica:handle_stop_replica",
        CLUSTER,
        ACTION,
        frame_bytes_max=CONTROL_BYTES,
        elements_max=MANY,
    ),
    ApiSpec(
        6,
        (0, 8),
        "internal.update_metadata:handle_update_metadata",
        CLUSTER,
        ACTION,
        frame_bytes_max=CONTROL_BYTES,
        elements_max=MANY,
    ),
    ApiSpec(7, (0, 3), "internal.controlled_shutdown:handle_controlled_shutdown", CLUSTER, ACTION),
)
INTERNAL = ApiTable((*TABLE, *BETWEEN_BROKERS))
