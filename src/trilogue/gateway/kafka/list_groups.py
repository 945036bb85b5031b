"""ListGroups v0-v5: every group that is known here, those without members included.

v3 flexible · v4 states, and a filter of them · v5 kinds (classic, consumer), likewise. Filters are
compared without regard to case; what no group can be matches none. Who may not describe the cluster
is told of the groups that it may describe.
"""

from __future__ import annotations

import asyncio

from trilogue.broker.access import CLUSTER, Operation, ResourceKind
from trilogue.broker.group_admin import Known
from trilogue.gateway.kafka.shared import Call
from trilogue.wire.kafka.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

YIELD_EVERY = 1_000  # groups that are looked at in one go, before others may use the loop


async def handle(call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    """List the groups that fit."""
    states, types = _filter(request.states_filter), _filter(request.types_filter)
    everything = call.allowed(CLUSTER.name)
    found: list[ListedGroup] = []
    for number, known in enumerate(call.broker.group_admin.listed(), 1):
        if number % YIELD_EVERY == 0:
            await asyncio.sleep(0)
        if states and known.state_name.lower() not in states:
            continue
        if types and known.type not in types:
            continue
        if everything or call.may(Operation.DESCRIBE, ResourceKind.GROUP, known.name):
            found.append(_listed(known))
    return ListGroupsResponse(groups=found)


def _filter(asked: list[str]) -> set[str]:
    return {each.strip().lower() for each in asked}


def _listed(known: Known) -> ListedGroup:
    return ListedGroup(
        group_id=known.name,
        protocol_type=known.protocol_type,
        group_state=known.state_name,
        group_type=known.type,
    )
