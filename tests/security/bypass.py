"""What the bypass matrix needs: a cluster with one secret topic, and an authorizer with no ACL."""

from __future__ import annotations

from typing import Any

from trilogue.broker.access.acl_authorizer import AclAuthorizer
from trilogue.broker.access.acls import AclStore
from trilogue.broker.access.authorizer import Operation, Principal, Resource, ResourceKind

SECRET = b"the secret of the orders"
ORDERS = "public/default/orders"


class NoAcls(AclAuthorizer):
    """The real authorizer over an empty list; `open` lets the tests prepare."""

    def __init__(self) -> None:
        super().__init__(AclStore({}))
        self.is_open = False
        self.asked: list[tuple[Operation, Resource]] = []

    def allowed(
        self, principal: Principal, operation: Operation, resource: Resource, host: str = ""
    ) -> bool:
        self.asked.append((operation, resource))
        self.move()  # decisions are not cached
        return self.is_open or super().allowed(principal, operation, resource, host)

    def allowed_on_any(
        self, principal: Principal, operation: Operation, kind: ResourceKind, host: str = ""
    ) -> bool:
        return self.is_open or super().allowed_on_any(principal, operation, kind, host)


def describe_state(rig: Any) -> object:
    """Return all that a client could have changed; the broker's facts since the last call too."""
    broker, state = rig.broker, rig.meta.state
    ends = {
        partition.partition_id: (partition.log.start_offset, partition.log.end_offset)
        for topic in broker.cluster
        for partition in topic.partitions
    }
    groups = sorted(group.name for group in broker.groups)
    return dict(state.topics), dict(state.settings), ends, groups, broker.snapshot()
