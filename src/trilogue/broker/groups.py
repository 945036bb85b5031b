"""All groups of this node, by name: found, made and, when there are too many, forgotten.

What is here is memory only. After a restart members hear UnknownMember, join again and go on from
the positions, which are durable (cursor.py). Groups without members are kept while there is room,
the one that has been empty longest goes first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping

from trilogue.broker.cursor import NAME_SIZE_MAX
from trilogue.broker.errors import (
    BrokerError,
    GroupUnavailable,
    IllegalGeneration,
    InvalidGroupName,
    UnknownMember,
)
from trilogue.broker.group import Group
from trilogue.broker.group_members import GroupSettings, Joined, JoinRequest, Synced, Timers
from trilogue.broker.group_states import State
from trilogue.broker.promise import Promise


class Groups:
    """The groups' front: every call names its group."""

    def __init__(
        self, settings: GroupSettings, timers: Timers, new_member_suffix: Callable[[], str]
    ) -> None:
        self.settings = settings
        self._timers = timers
        self._new_member_suffix = new_member_suffix
        self._groups: dict[str, Group] = {}
        self._idle: OrderedDict[str, Group] = OrderedDict()

    def __iter__(self) -> Iterator[Group]:
        """All groups, also empty ones."""
        return iter(self._groups.values())

    def __len__(self) -> int:
        return len(self._groups)

    def find(self, name: str) -> Group | None:
        """Return a group if it is known."""
        return self._groups.get(name)

    def join(self, request: JoinRequest) -> Promise[Joined]:
        """Become or stay a member of a group, which is made when it is new."""
        try:
            group = self._groups.get(request.group) or self._make(request.group)
            promise = group.join(request)
        except BrokerError as error:
            return Promise.broken(error)
        if group.state is not State.EMPTY:
            self._idle.pop(group.name, None)
        return promise

    def sync(
        self,
        name: str,
        member_id: str,
        generation: int,
        instance_id: str | None = None,
        *,
        assignments: Mapping[str, bytes] | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> Promise[Synced]:
        """Bring or get the assignment."""
        try:
            return self._group(name).sync(
                member_id,
                generation,
                instance_id,
                assignments=assignments,
                protocol_type=protocol_type,
                protocol=protocol,
            )
        except BrokerError as error:
            return Promise.broken(error)

    def heartbeat(
        self, name: str, member_id: str, generation: int, instance_id: str | None = None
    ) -> None:
        """Show life; raises what the member must know."""
        self._group(name).heartbeat(member_id, generation, instance_id)

    def leave(self, name: str, member_id: str, instance_id: str | None = None) -> None:
        """Go; raises when there was nobody to go. Of several each is asked for by itself."""
        self._group(name).leave(member_id, instance_id)

    def check_commit(
        self, name: str, member_id: str, generation: int, instance_id: str | None = None
    ) -> None:
        """Refuse a commit that its group would not allow; a name without a group is free."""
        group = self._groups.get(name)
        if group is not None:
            group.check_commit(member_id, generation, instance_id)
        elif generation >= 0:
            raise IllegalGeneration("the group has no generation")

    def _group(self, name: str) -> Group:
        if not name:
            raise InvalidGroupName("a group needs a name")
        group = self._groups.get(name)
        if group is None:
            raise UnknownMember("the group has no members")
        return group

    def _make(self, name: str) -> Group:
        if not name or len(name.encode()) > NAME_SIZE_MAX:
            raise InvalidGroupName(f"a group name has 1 to {NAME_SIZE_MAX} bytes")
        if len(self._groups) >= self.settings.groups_max:
            if not self._idle:
                raise GroupUnavailable(f"there are {self.settings.groups_max} groups already")
            forgotten, group = self._idle.popitem(last=False)
            group.forget()
            del self._groups[forgotten]
        group = Group(name, self.settings, self._timers, self._new_member_suffix, self._emptied)
        self._groups[name] = self._idle[name] = group
        return group

    def _emptied(self, group: Group) -> None:
        self._idle[group.name] = group
