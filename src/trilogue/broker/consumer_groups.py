"""All consumer groups of this node: which one a heartbeat is for, and which ones a topic is of.

The groups themselves stand in the registry of all groups (groups.py); here is only what members of
consumer groups ask. A group is made by the first member that joins it, also in the place of a
classic group without members.

Unlike Kafka, whose groups outlive it, a heartbeat at an epoch to a group that is not here is
answered as to a member that is not here: after a restart that lets clients join again, where "no
such group" would end them. Who leaves such a group is told that there is none.
"""

from __future__ import annotations

from trilogue.broker.cluster import Cluster, Event
from trilogue.broker.consumer_group import (
    Beat,
    Beaten,
    ConsumerGroup,
    ConsumerGroupSettings,
    check_words,
)
from trilogue.broker.consumer_group_members import AWAY, JOINING, LEAVING
from trilogue.broker.errors import UnknownGroup, UnknownMember
from trilogue.broker.groups import Groups
from trilogue.broker.topic import Topic


class ConsumerGroups:
    """The consumer groups' front: every call names its group."""

    def __init__(self, settings: ConsumerGroupSettings, groups: Groups, cluster: Cluster) -> None:
        self.settings = settings
        self._groups = groups
        self._cluster = cluster
        cluster.listeners.append(self._note)

    def beat(self, beat: Beat) -> Beaten:
        """Hear a member; make its group when it is the first."""
        check_words(beat, self.settings)
        group = self._find(beat)
        answer = group.beat(beat)
        if not group.is_empty:
            self._groups.occupied(group)
        return answer

    def find(self, name: str) -> ConsumerGroup:
        """Return a consumer group to tell of, or say that there is none."""
        group = self._groups.find(name)
        if group is None:
            raise UnknownGroup(f"group {name} not found")
        if not isinstance(group, ConsumerGroup):
            raise UnknownGroup(f"group {name} is not a consumer group")
        return group

    def _find(self, beat: Beat) -> ConsumerGroup:
        found = self._groups.find(beat.group)
        if isinstance(found, ConsumerGroup):
            return found
        if beat.epoch in {LEAVING, AWAY}:
            return self.find(beat.group)
        if beat.epoch != JOINING:
            raise UnknownMember(f"member {beat.member_id} is not a member of group {beat.group}")
        if found is not None and not found.is_empty:
            return self.find(beat.group)
        group = ConsumerGroup(
            beat.group, self.settings, self._groups.timers, self._cluster, self._groups.emptied
        )
        self._groups.replace(beat.group, group)
        return group

    def _note(self, event: Event, topic: Topic) -> None:
        for group in self._groups:
            if isinstance(group, ConsumerGroup):
                group.note_topic(topic, gone=event is Event.DELETED)
