"""All groups of one kind on this node, by name: which one a heartbeat is for.

The groups themselves are in the registry of all groups (registry.py). The first member that joins
creates the group. A name that belongs to a group of another kind is refused, and an empty classic
group gives up its name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, TypeVar

from trilogue.broker.errors import UnknownGroup, UnknownMember
from trilogue.broker.groups.group import Group
from trilogue.broker.groups.reconciliation import JOIN_EPOCH, LEAVE_EPOCH
from trilogue.broker.groups.registry import GroupRegistry

G = TypeVar("G", bound=Group)


class GroupKindRegistry(ABC, Generic[G]):
    """The front of one kind of groups: every call names its group."""

    group_class: type[G]
    type: ClassVar[str]  # SHARE or STREAMS
    kind: ClassVar[str]  # in messages

    def __init__(self, groups: GroupRegistry) -> None:
        self.groups = groups

    @abstractmethod
    def make_group(self, name: str) -> G:
        """Return a new group, which is not registered."""

    def find_group(self, name: str) -> G:
        """Return a group of this kind; raises UnknownGroup."""
        group = self.groups.find_group(name)
        if group is None:
            record = self.groups.records.get(name)
            if record is not None and record.type == self.type:
                return self.make_group(name)  # known from before, without members
            if record is None and not self.groups.has_positions(name):
                raise UnknownGroup(f"Group {name} not found.")
        if not isinstance(group, self.group_class):
            raise UnknownGroup(f"Group {name} is not a {self.kind}.")
        return group

    def find_for_heartbeat(self, name: str, member_id: str, epoch: int, creator: str = "") -> G:
        """Return the group of a heartbeat, made for its first member."""
        found = self.groups.find_group(name)
        if epoch == JOIN_EPOCH:
            self.groups.check_share(found, creator)
        if isinstance(found, self.group_class):
            return found
        if epoch == LEAVE_EPOCH:
            return self.find_group(name)
        if not self.groups.is_free(name, self.type):
            raise UnknownGroup(f"Group {name} is not a {self.kind}.")
        if epoch != JOIN_EPOCH:
            raise UnknownMember(f"member {member_id} is not a member of group {name}")
        group = self.make_group(name)
        self.groups.replace(name, group)
        return group
