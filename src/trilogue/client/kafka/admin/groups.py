"""Groups: listed, described and removed; of the classic protocol and of KIP-848."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from trilogue.client.errors import Unsupported
from trilogue.client.kafka.admin.model import (
    GroupDescription,
    GroupListing,
    MemberDescription,
    operations_of,
)
from trilogue.client.kafka.admin.requests import AdminRequests
from trilogue.client.kafka.connection import KafkaConnection
from trilogue.client.kafka.coordinators import Coordinators
from trilogue.client.kafka.errors import KafkaError, error_for_code, raise_for_code
from trilogue.client.kafka.model import Node, Partition
from trilogue.wire.errors import WireError
from trilogue.wire.kafka.codec.schema import Bytes
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.groups import describe_consumer_groups as consumer_groups
from trilogue.wire.kafka.groups.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from trilogue.wire.kafka.groups.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from trilogue.wire.kafka.groups.list_groups import ListGroupsRequest, ListGroupsResponse
from trilogue.wire.kafka.groups.member_metadata import decode_assignment, decode_subscription

LIST_GROUPS: Final = 16
STATES_SINCE, TYPES_SINCE = 4, 5
CONSUMER_GROUP_DESCRIBE: Final = 69
NOT_OF_KIP_848: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
CONSUMER: Final = "consumer"
CLASSIC: Final = "classic"


class GroupAdmin(AdminRequests):
    """Requests about groups; each goes to the group's coordinator."""

    _coordinators: Coordinators

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> list[GroupListing]:
        """All groups of all nodes, or those in these states and of these types."""
        wanted_states, wanted_types = list(states), list(types)

        async def list_all() -> list[GroupListing]:
            found: dict[str, GroupListing] = {}
            for connection in (await self._all_nodes()).values():
                version = connection.version(LIST_GROUPS)
                for names, since in (
                    (wanted_states, STATES_SINCE),
                    (wanted_types, TYPES_SINCE),
                ):
                    if names and version < since:
                        raise Unsupported(f"the server lists groups in v{version} only")
                answer: ListGroupsResponse = await self._send_request(
                    connection,
                    ListGroupsRequest(states_filter=wanted_states, types_filter=wanted_types),
                )
                raise_for_code(answer.error_code, "list groups")
                for row in answer.groups:
                    found[row.group_id] = GroupListing(
                        row.group_id, row.protocol_type, row.group_state, row.group_type.lower()
                    )
            return [found[name] for name in sorted(found)]

        return await self._retry(list_all)

    async def describe_groups(
        self, names: Iterable[str], *, operations: bool = False
    ) -> dict[str, GroupDescription | KafkaError]:
        """State and members of groups of either kind.

        One that is not there is a classic group in the state "Dead", or GROUP_ID_NOT_FOUND, as
        the server's version has it.
        """

        async def describe(
            connection: KafkaConnection, node: Node, some: list[str]
        ) -> dict[str, GroupDescription | KafkaError]:
            found = await _of_kip_848(self._send_request, connection, node, some, operations)
            classic = [name for name in some if name not in found]
            if classic:
                answer: DescribeGroupsResponse = await self._send_request(
                    connection,
                    DescribeGroupsRequest(groups=classic, include_authorized_operations=operations),
                )
                found |= {row.group_id: _classic(row, node) for row in answer.groups}
            return found

        return await self._request_coordinators(
            self._coordinators, names, describe, repeatable=True
        )

    async def delete_groups(self, names: Iterable[str]) -> dict[str, KafkaError | None]:
        """Remove groups without members, and their positions."""

        async def delete(
            connection: KafkaConnection, _node: Node, some: list[str]
        ) -> dict[str, KafkaError | None]:
            answer: DeleteGroupsResponse = await self._send_request(
                connection, DeleteGroupsRequest(groups_names=some)
            )
            return {
                row.group_id: error_for_code(row.error_code, f"delete group {row.group_id}")
                for row in answer.results
            }

        return await self._request_coordinators(self._coordinators, names, delete)


async def _of_kip_848(
    send_request: Any, connection: KafkaConnection, node: Node, names: list[str], operations: bool
) -> dict[str, GroupDescription | KafkaError]:
    """Those of the groups that are of KIP-848."""
    try:
        connection.version(CONSUMER_GROUP_DESCRIBE)
    except Unsupported:
        return {}
    answer: consumer_groups.ConsumerGroupDescribeResponse = await send_request(
        connection,
        consumer_groups.ConsumerGroupDescribeRequest(
            group_ids=names, include_authorized_operations=operations
        ),
    )
    found: dict[str, GroupDescription | KafkaError] = {}
    for row in answer.groups:
        problem = error_for_code(row.error_code, f"group {row.group_id}", row.error_message)
        if problem is None:
            found[row.group_id] = _consumer_group(row, node)
        elif problem.error not in NOT_OF_KIP_848:
            found[row.group_id] = problem
    return found


def _consumer_group(row: consumer_groups.DescribedConsumerGroup, node: Node) -> GroupDescription:
    return GroupDescription(
        row.group_id,
        CONSUMER,
        row.group_state,
        CONSUMER,
        row.assignor_name,
        tuple(
            MemberDescription(
                one.member_id,
                one.instance_id,
                one.client_id,
                one.client_host,
                _partitions(one.assignment),
                tuple(one.subscribed_topic_names),
                _partitions(one.target_assignment),
                one.member_epoch,
                one.subscribed_topic_regex or None,
            )
            for one in row.members
        ),
        node,
        row.group_epoch,
        row.assignment_epoch,
        operations_of(row.authorized_operations),
    )


def _partitions(assignment: consumer_groups.DescribedAssignment) -> tuple[Partition, ...]:
    return tuple(
        Partition(topic.topic_name, number)
        for topic in assignment.topic_partitions
        for number in topic.partitions
    )


def _classic(row: DescribedGroup, node: Node) -> GroupDescription | KafkaError:
    problem = error_for_code(row.error_code, f"group {row.group_id}", row.error_message)
    if problem is not None:
        return problem
    consumers = row.protocol_type == CONSUMER
    return GroupDescription(
        row.group_id,
        CLASSIC,
        row.group_state,
        row.protocol_type,
        row.protocol_data,
        tuple(_member(one, consumers) for one in row.members),
        node,
        operations=operations_of(row.authorized_operations),
    )


def _member(row: DescribedGroupMember, is_consumer: bool) -> MemberDescription:
    return MemberDescription(
        row.member_id,
        row.group_instance_id,
        row.client_id,
        row.client_host,
        _assigned(row.member_assignment) if is_consumer else (),
        _wanted(row.member_metadata) if is_consumer else (),
    )


def _assigned(blob: Bytes) -> tuple[Partition, ...]:
    try:
        rows = decode_assignment(blob).assigned_partitions if blob else []
    except WireError:  # other protocol types are opaque
        return ()
    return tuple(Partition(row.topic, number) for row in rows for number in row.partitions)


def _wanted(blob: Bytes) -> tuple[str, ...]:
    try:
        return tuple(decode_subscription(blob).topics) if blob else ()
    except WireError:
        return ()
