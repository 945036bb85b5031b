"""The loop of the requests that describe groups: each group once, in steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from typing import Protocol, TypeVar

from trilogue.broker.access.authorizer import ResourceKind
from trilogue.gateway.kafka.authorized_operations import authorized_operations
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.steps import next_step


class DescribedByName(Protocol):
    """A group of a response."""

    error_code: int
    authorized_operations: int

    @property
    def members(self) -> Sized:
        """Its members."""


Group = TypeVar("Group", bound=DescribedByName)


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
