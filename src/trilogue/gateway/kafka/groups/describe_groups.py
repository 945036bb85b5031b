"""DescribeGroups v0-v6: state and members of classic groups.

v3 authorized operations (left out with an error) · v4 static members · v5 flexible · v6 a missing
group is 69 with a message; before, its state is `Dead`, which is no error. An unstable group lists
its members without their metadata and assignments, as in Kafka. A KIP-848 group is 69: an
`AdminClient` then uses ConsumerGroupDescribe.
"""

from __future__ import annotations

from trilogue.broker.access.authorizer import ResourceKind
from trilogue.broker.errors import UnknownGroup
from trilogue.broker.groups.admin import GroupListing
from trilogue.broker.groups.classic.group import ClassicGroup
from trilogue.broker.groups.classic.members import ClassicMember
from trilogue.broker.groups.classic.states import GroupState
from trilogue.broker.groups.group import CLASSIC
from trilogue.gateway.kafka.authorized_operations import authorized_operations
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.steps import next_step
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.groups.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

NOT_FOUND_SINCE = 6
YIELD_EVERY = 1_000  # members per loop iteration


async def handle_describe_groups(
    context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """Describe each requested group once, in the order of the request."""
    response = DescribeGroupsResponse()
    work = 0
    for name in dict.fromkeys(request.groups):
        group = _group(context, name)
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = authorized_operations(context, ResourceKind.GROUP, name)
        response.groups.append(group)
        work += 1 + len(group.members)
        if work >= YIELD_EVERY:
            work = 0
            await next_step()
    return response


def _group(context: RequestContext, name: str) -> DescribedGroup:
    if refusal := context.group_refusal(name):
        return DescribedGroup(group_id=name, error_code=refusal)
    try:
        known = context.broker.group_admin.known(name)
    except UnknownGroup:
        return _dead(context, name, f"Group {name} not found.")
    if known.type != CLASSIC:
        return _dead(context, name, f"Group {name} is not a classic group.")
    return _classic(known)


def _dead(context: RequestContext, name: str, text: str) -> DescribedGroup:
    dead = DescribedGroup(group_id=name, group_state=GroupState.DEAD.value)
    if context.version >= NOT_FOUND_SINCE:
        dead.error_code, dead.error_message = ErrorCode.GROUP_ID_NOT_FOUND, text
    return dead


def _classic(known: GroupListing) -> DescribedGroup:
    described = DescribedGroup(
        group_id=known.name, group_state=known.state_name, protocol_type=known.protocol_type
    )
    group = known.group
    if isinstance(group, ClassicGroup):
        settled = group.state is GroupState.STABLE
        described.protocol_data = group.protocol if settled else ""
        described.members = [_member(each, described.protocol_data) for each in group.members]
    return described


def _member(member: ClassicMember, protocol: str) -> DescribedGroupMember:
    """Return one member; without a protocol only its identity."""
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(protocol) if protocol else b"",
        member_assignment=member.assignment if protocol else b"",
    )
