"""What administrators may see of groups, and take away from them.

A group is known when it is in the registry, when something is remembered of it, or when it has
positions: a name that positions were committed to by hand is a group without members and without a
kind of protocol (Kafka's "simple" group).

What is taken away is removed from the journal's point of view at once and for good: the promises
here are kept when it is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import NamedTuple

from trilogue.broker.cursors.committed_offsets import CommittedOffsets
from trilogue.broker.errors import (
    GroupNotEmpty,
    GroupReadsTopic,
    InvalidGroupName,
    UnknownGroup,
)
from trilogue.broker.facts import Protocol
from trilogue.broker.groups.classic.states import GroupState
from trilogue.broker.groups.group import CLASSIC, CONSUMER_PROTOCOL, SHARE, STREAMS, Group
from trilogue.broker.groups.registry import GroupRegistry
from trilogue.broker.names import TopicName
from trilogue.broker.promise import Promise

KAFKA = Protocol.KAFKA

RemovePositions = Callable[[str, Collection[int] | None], Promise[None]]


class GroupListing(NamedTuple):
    """A group as it is listed."""

    name: str
    type: str = CLASSIC
    protocol_type: str = ""
    state_name: str = GroupState.EMPTY.value
    group: Group | None = None  # None: it has no members


class GroupAdmin:
    """Lists, deletes. `remove(name, partition ids or None for all)` makes a removal durable.

    `remove_shares` does the same to the positions of a share group.
    """

    def __init__(
        self,
        groups: GroupRegistry,
        cursors: CommittedOffsets,
        remove: RemovePositions,
        remove_shares: RemovePositions,
    ) -> None:
        self._remove_shares = remove_shares
        self._groups = groups
        self._cursors = cursors
        self._remove = remove

    # -- what there is

    def known(self, name: str) -> GroupListing:
        """Return a group; UnknownGroup."""
        group = self._groups.find_group(name)
        if group is not None:
            return GroupListing(name, group.type, group.protocol_type, group.state_name, group)
        record = self._groups.records.get(name)
        if record is not None:
            return GroupListing(name, record.type, record.protocol_type)
        if not self._cursors.positions(KAFKA, name):
            raise UnknownGroup(f"Group {name} not found.")
        return GroupListing(name)

    def listed(self) -> Iterator[GroupListing]:
        """Return every group that is known, once; groups may come and go meanwhile."""
        names = dict.fromkeys(group.name for group in self._groups)
        names.update(dict.fromkeys(self._groups.records.names()))
        names.update(dict.fromkeys(self._cursors.names(KAFKA)))
        for name in names:
            with suppress(UnknownGroup):
                yield self.known(name)

    # -- what is taken away

    def delete(self, name: str) -> Promise[None]:
        """Forget a group and all its positions; UnknownGroup, GroupNotEmpty."""
        known = self.known(name)
        if known.group is not None and not known.group.is_empty:
            raise GroupNotEmpty(f"group {name} has members")
        promise = self._remove(name, None)
        if known.type == SHARE:  # durable after the other removal
            promise = self._remove_shares(name, None)
        self._groups.drop(name)
        return promise

    def check_removal(self, name: str) -> None:
        """Refuse to remove positions of a group that is not there, or may need all it has.

        A consumer group may lose offsets of topics that none of its members reads (KIP-496); how
        members of other protocol types use theirs is unknown. UnknownGroup, GroupNotEmpty,
        InvalidGroupName.
        """
        if not name:
            raise InvalidGroupName("a group needs a name")
        known = self.known(name)
        group = known.group
        if known.type == SHARE:
            raise UnknownGroup(f"group {name} is a share group, which has no committed offsets")
        if group is None or group.is_empty:
            return
        if known.protocol_type not in {CONSUMER_PROTOCOL, STREAMS}:
            raise GroupNotEmpty(f"group {name} has members of kind {known.protocol_type!r}")

    def topic_check(self, name: str) -> Callable[[TopicName], None]:
        """Return what refuses to remove positions of topics that the group reads now.

        It raises GroupReadsTopic.
        """
        group = self._groups.find_group(name)
        reads = None if group is None or group.is_empty else group.reading()

        def check(topic: TopicName) -> None:
            if reads is not None and reads(topic):
                raise GroupReadsTopic(f"group {name} reads {topic}")

        return check

    def remove(self, name: str, partition_ids: Collection[int]) -> Promise[None]:
        """Remove positions; the checks above are the caller's."""
        return self._remove(name, partition_ids)
