"""All consumer groups of this node: which one a heartbeat is for, and which ones a topic is of.

The groups themselves stand in the registry of all groups (groups.py); here is only what members of
consumer groups ask. A group is made by the first member that joins it, also in the place of a
classic group; if that has members, they come with it (consumer_group_classic.py).

Unlike Kafka, whose groups outlive it, a heartbeat at an epoch to a group that is not here is
answered as to a member that is not here: after a restart that lets clients join again, where "no
such group" would end them. Who leaves such a group is told that there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from trilogue.broker.any_group import CONSUMER, CONSUMER_PROTOCOL
from trilogue.broker.cluster import Cluster, Event
from trilogue.broker.consumer_group import (
    Beat,
    Beaten,
    ConsumerGroupSettings,
    check_words,
)
from trilogue.broker.consumer_group_classic import UNREAD, MixedGroup, Shares
from trilogue.broker.consumer_group_load import Load
from trilogue.broker.consumer_group_members import AWAY, JOINING, LEAVING
from trilogue.broker.consumer_group_topics import Commons
from trilogue.broker.errors import UnknownGroup, UnknownMember
from trilogue.broker.group import Group
from trilogue.broker.groups import Groups
from trilogue.broker.topic import Topic


def unsaid(_group: str, _key: str) -> int | None:
    """Nothing was said of any group: the settings hold for it."""
    return None


class ConsumerGroups:
    """The consumer groups' front: every call names its group."""

    def __init__(
        self,
        settings: ConsumerGroupSettings,
        groups: Groups,
        cluster: Cluster,
        *,
        shares: Shares = UNREAD,
        said: Callable[[str, str], int | None] = unsaid,
    ) -> None:
        self.settings = settings
        self._shares = shares
        self._said = said
        self._groups = groups
        self.commons = Commons(cluster, groups.timers, Load(settings.total_max))
        cluster.listeners.append(self._note)

    def beat(self, beat: Beat) -> Beaten:
        """Hear a member; make its group when it is the first."""
        check_words(beat, self.settings)
        group = self._find(beat)
        answer = group.beat(beat)
        if not group.is_empty and self._groups.find(beat.group) is group:
            self._groups.occupied(group)
        return answer

    def find(self, name: str) -> MixedGroup:
        """Return a consumer group to tell of, or say that there is none."""
        group = self._groups.find(name)
        if group is None:
            record = self._groups.records.get(name)
            if record is not None and record.type == CONSUMER:
                return self._make(name)  # known from before a restart: nobody has come back yet
            raise UnknownGroup(f"group {name} not found")
        if not isinstance(group, MixedGroup):
            raise UnknownGroup(f"group {name} is not a consumer group")
        return group

    def _find(self, beat: Beat) -> MixedGroup:
        found = self._groups.find(beat.group)
        if isinstance(found, MixedGroup):
            return found
        if beat.epoch in {LEAVING, AWAY}:
            return self.find(beat.group)
        if beat.epoch != JOINING:
            raise UnknownMember(f"member {beat.member_id} is not a member of group {beat.group}")
        group = self._make(beat.group)
        if isinstance(found, Group) and not found.is_empty:
            self._check_upgrade(found)
            group.adopt(found)
            found.dissolve()
        self._groups.replace(beat.group, group)
        return group

    def _make(self, name: str) -> MixedGroup:
        group = MixedGroup(name, self.settings, self._groups, self.commons, shares=self._shares)
        group.said = partial(self._said, name)
        return group

    def _check_upgrade(self, group: Group) -> None:
        """Refuse to let a classic group go on as a consumer group."""
        why = ""
        if not self.settings.upgrade:
            why = "that is not allowed here"
        elif group.protocol_type != CONSUMER_PROTOCOL:
            why = "its members are no readers"
        elif len(group.members) >= self.settings.size_max:
            why = "it has too many members"
        if why:
            raise UnknownGroup(f"group {group.name} cannot become a consumer group: {why}")

    def _note(self, event: Event, topic: Topic) -> None:
        self.commons.note(topic.name, gone=event is Event.DELETED)
