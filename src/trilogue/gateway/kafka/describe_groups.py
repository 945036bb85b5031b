"""DescribeGroups v0-v6: state and members of classic groups.

v3 may tell what the caller may do (the bit field is left out where there is an error) · v4 static
members · v5 flexible · v6 says that a group is not there (69, with a sentence); before that such a
group is `Dead`, which is no error. A group that is not settled tells who its members are and
nothing of what they said or were given, as real brokers do. A KIP-848 group is no group here: 69
is an `AdminClient`'s sign to ask the older or the newer request.
"""

from __future__ import annotations

import asyncio

from trilogue.broker.access import ResourceKind
from trilogue.broker.any_group import CLASSIC
from trilogue.broker.errors import UnknownGroup
from trilogue.broker.group import Group
from trilogue.broker.group_admin import Known
from trilogue.broker.group_members import Member
from trilogue.broker.group_states import State
from trilogue.gateway.kafka.access import operations
from trilogue.gateway.kafka.shared import Call
from trilogue.wire.kafka.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from trilogue.wire.kafka.errors import ErrorCode

NOT_FOUND_SINCE = 6
YIELD_EVERY = 1_000  # members told in one go, before others may use the loop


async def handle(call: Call, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Tell of each group that was asked for, in that order; of one that is named again once."""
    response = DescribeGroupsResponse()
    told = 0
    for name in dict.fromkeys(request.groups):
        group = _group(call, name)
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = operations(call, ResourceKind.GROUP, name)
        response.groups.append(group)
        told += 1 + len(group.members)
        if told >= YIELD_EVERY:
            told = 0
            await asyncio.sleep(0)
    return response


def _group(call: Call, name: str) -> DescribedGroup:
    if not call.allowed(name):
        return DescribedGroup(group_id=name, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    try:
        known = call.broker.group_admin.known(name)
    except UnknownGroup:
        return _dead(call, name, f"Group {name} not found.")
    if known.type != CLASSIC:
        return _dead(call, name, f"Group {name} is not a classic group.")
    return _classic(known)


def _dead(call: Call, name: str, text: str) -> DescribedGroup:
    dead = DescribedGroup(group_id=name, group_state=State.DEAD.value)
    if call.version >= NOT_FOUND_SINCE:
        dead.error_code, dead.error_message = ErrorCode.GROUP_ID_NOT_FOUND, text
    return dead


def _classic(known: Known) -> DescribedGroup:
    described = DescribedGroup(
        group_id=known.name, group_state=known.state_name, protocol_type=known.protocol_type
    )
    group = known.group
    if isinstance(group, Group):
        settled = group.state is State.STABLE
        described.protocol_data = group.protocol if settled else ""
        described.members = [_member(each, described.protocol_data) for each in group.members]
    return described


def _member(member: Member, protocol: str) -> DescribedGroupMember:
    """One member; without a protocol only who it is."""
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(protocol) if protocol else b"",
        member_assignment=member.assignment if protocol else b"",
    )
