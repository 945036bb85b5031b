"""What requests that describe groups have in common: each group once, in steps, or its error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from typing import Protocol, TypeVar

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import BrokerError
from trilogue.broker.groups.group import Group as BrokerGroup
from trilogue.broker.names import TopicName
from trilogue.gateway.kafka.authorized_operations import authorized_operations
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import to_error_code
from trilogue.gateway.steps import next_step
from trilogue.wire.kafka.errors import ErrorCode


class DescribedByName(Protocol):
    """A group of a response."""

    error_code: int
    authorized_operations: int

    @property
    def members(self) -> Sized:
        """Its members."""


Group = TypeVar("Group", bound=DescribedByName)
Found = TypeVar("Found", bound=BrokerGroup)


async def describe_each(
    context: RequestContext,
    names: Iterable[str],
    describe: Callable[[RequestContext, str], Group],
    *,
    with_operations: bool,
    members_per_step: int = 100,
) -> list[Group]:
    """Return the description of each group once, in the order of the names."""
    groups: list[Group] = []
    work = 0
    for name in dict.fromkeys(names):
        group = describe(context, name)
        if with_operations and not group.error_code:
            group.authorized_operations = authorized_operations(context, ResourceKind.GROUP, name)
        groups.append(group)
        work += 1 + len(group.members)
        if work >= members_per_step:
            work = 0
            await next_step()
    return groups


def describe_group(
    context: RequestContext,
    name: str,
    make: Callable[..., Group],
    *,
    find: Callable[[str], Found],
    list_topics: Callable[[Found], Iterable[TopicName]],
    describe: Callable[[Found], Group],
) -> Group:
    """Return the description of a group with epochs, or its error.

    A topic that the client may not describe hides the whole group, as in Kafka.
    """
    if code := context.group_refusal(name):
        return make(error_code=code, group_id=name)
    if not name:
        return make(error_code=ErrorCode.INVALID_GROUP_ID, group_id=name)
    try:
        group = find(name)
    except BrokerError as refusal:
        return make(error_code=to_error_code(refusal), error_message=str(refusal), group_id=name)
    for topic in list_topics(group):
        if not context.is_allowed_to(Operation.DESCRIBE, ResourceKind.TOPIC, topic):
            return make(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, group_id=name)
    return describe(group)
