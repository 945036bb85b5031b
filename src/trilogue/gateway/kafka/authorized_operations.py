"""The bit field of operations that a client may perform on a resource (KIP-430)."""

from __future__ import annotations

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.gateway.kafka.context import RequestContext

NOT_REQUESTED = -0x80000000

OPERATION_CODES: dict[Operation, int] = {
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

# The operations of each kind of resource, as Kafka 4.3.1 reports them. A 3.9 lacks the settings of
# groups (328 instead of 3400); topics (3576) and the cluster (8096) are the same.
SUPPORTED_OPERATIONS: dict[ResourceKind, tuple[Operation, ...]] = {
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


def authorized_operations(context: RequestContext, kind: ResourceKind, name: object) -> int:
    """Return the bit field of what the client may do to this resource."""
    bits = 0
    for operation in SUPPORTED_OPERATIONS[kind]:
        if context.can_see(operation, kind, name):
            bits |= 1 << OPERATION_CODES[operation]
    return bits
