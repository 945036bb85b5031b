"""ListGroups (16) v0-v5: the groups that a broker coordinates.

v1 throttle time · v2 unchanged · v3 flexible · v4 filter by state · v5 filter by type.
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import int16, int32, message, since, string


@message(key=16, versions=(0, 5), flexible=3)
class ListGroupsRequest:
    """List all groups, or those in these states and of these types."""

    states_filter: list[string] = since(4)
    types_filter: list[string] = since(5)


@message()
class ListedGroup:
    """The name, state and type of a group."""

    group_id: string = since(0)
    protocol_type: string = since(0)
    group_state: string = since(4)
    group_type: string = since(5)


@message(key=16, versions=(0, 5), flexible=3)
class ListGroupsResponse:
    """The groups."""

    throttle_time_ms: int32 = since(1)
    error_code: int16 = since(0)
    groups: list[ListedGroup] = since(0)
