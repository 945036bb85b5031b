"""Our operations as Kafka's numbers, and the bit field that says which of them a client may do."""

from __future__ import annotations

from trilogue.broker.access import Operation, ResourceKind
from trilogue.gateway.kafka.shared import Call

NOT_ASKED = -0x80000000

NUMBERS: dict[Operation, int] = {
    Operation.READ: 3,
    Operation.WRITE: 4,
    Operation.CREATE: 5,
    Operation.DELETE: 6,
    Operation.ALTER: 7,
    Operation.DESCRIBE: 8,
    Operation.CLUSTER_ACTION: 9,
    Operation.DESCRIBE_SETTINGS: 10,
    Operation.ALTER_SETTINGS: 11,
    Operation.IDEMPOTENT_WRITE: 12,
}

# What makes sense for each kind of thing, as Kafka 4.3.1 tells it: a 3.9 leaves out the settings of
# groups (328 instead of 3400), and the rest is the same (topics 3576, the cluster 8096).
MEANINGFUL: dict[ResourceKind, tuple[Operation, ...]] = {
    ResourceKind.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_SETTINGS,
        Operation.ALTER_SETTINGS,
    ),
    ResourceKind.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_SETTINGS,
        Operation.ALTER_SETTINGS,
    ),
    ResourceKind.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_SETTINGS,
        Operation.ALTER_SETTINGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceKind.TRANSACTION: (Operation.WRITE, Operation.DESCRIBE),
}


def operations(call: Call, kind: ResourceKind, name: object) -> int:
    """The bit field of what the caller may do to this thing."""
    bits = 0
    for operation in MEANINGFUL[kind]:
        if call.may(operation, kind, name):
            bits |= 1 << NUMBERS[operation]
    return bits
