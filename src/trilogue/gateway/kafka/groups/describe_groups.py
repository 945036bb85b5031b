"""DescribeGroups v0-v6: state and members of classic groups.

v3 authorized operations (left out with an error) · v4 static members · v5 flexible · v6 a missing
group is 69 with a message; before, its state is `Dead`, which is no error. An unstable group lists
its members without their metadata and assignments, as in Kafka. A KIP-848 group is 69: an
`AdminClient` then uses ConsumerGroupDescribe.
"""

from __future__ import annotations

from trilogue.broker.errors import UnknownGroup
from trilogue.broker.groups.admin import GroupListing
from trilogue.broker.groups.classic.group import ClassicGroup
from trilogue.broker.groups.classic.members import ClassicMember
from trilogue.broker.groups.classic.states import GroupState
from trilogue.broker.groups.group import CLASSIC
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.groups.described_groups import describe_each
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.groups.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

NOT_FOUND_SINCE = 6


async def handle_describe_groups(
    context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """Describe each requested group once, in the order of the request."""
    groups = await describe_each(
        context,
        request.groups,
        _group,
        with_operations=request.include_authorized_operations,
        members_per_step=1_000,
    )
    return DescribeGroupsResponse(groups=groups)


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
