"""ListGroups v0-v5: every group that this node knows, also those without members.

v3 flexible · v4 states and a filter of states · v5 types (classic, consumer) and a filter. Filters
ignore case; an unknown state or type matches no group. A client that may not describe the cluster
gets the groups that it may describe.
"""

from __future__ import annotations

from trilogue.broker.access.authorizer import CLUSTER, Operation, ResourceKind
from trilogue.broker.groups.admin import GroupListing
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.steps import next_step
from trilogue.wire.kafka.groups.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

YIELD_EVERY = 1_000  # groups per loop iteration


async def handle_list_groups(
    context: RequestContext, request: ListGroupsRequest
) -> ListGroupsResponse:
    """List the groups that match the filters."""
    states, types = _filter(request.states_filter), _filter(request.types_filter)
    everything = context.can_see(context.operation, ResourceKind.CLUSTER, CLUSTER.name)
    found: list[ListedGroup] = []
    for number, known in enumerate(context.broker.group_admin.listed(), 1):
        if number % YIELD_EVERY == 0:
            await next_step()
        if states and known.state_name.lower() not in states:
            continue
        if types and known.type not in types:
            continue
        if everything or context.can_see(Operation.DESCRIBE, ResourceKind.GROUP, known.name):
            found.append(_listed(known))
    return ListGroupsResponse(groups=found)


def _filter(requested: list[str]) -> set[str]:
    return {each.strip().lower() for each in requested}


def _listed(known: GroupListing) -> ListedGroup:
    return ListedGroup(
        group_id=known.name,
        protocol_type=known.protocol_type,
        group_state=known.state_name,
        group_type=known.type,
    )
