"""All consumer groups of this node: which one a heartbeat is for, and which ones a topic is of.

The groups themselves stand in the registry of all groups (broker/groups/registry.py); here is only
what members of
consumer groups request. The first member that joins a group creates it, also in the place of a
classic group; if that has members, they come with it (mixed_group.py).

Unlike Kafka, whose groups outlive it, a heartbeat at an epoch to a group that is not here is
answered as to a member that is not here: that lets clients join again, where "no such group" would
end them. A member that leaves an unknown group gets UnknownGroup.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from trilogue.broker.errors import UnknownGroup, UnknownMember
from trilogue.broker.groups.classic.group import ClassicGroup
from trilogue.broker.groups.consumer.context import ConsumerGroupContext, GroupLoad
from trilogue.broker.groups.consumer.group import (
    ConsumerGroupSettings,
    Heartbeat,
    HeartbeatResponse,
    check_heartbeat,
)
from trilogue.broker.groups.consumer.mixed_group import NO_CODEC, AssignmentCodec, MixedGroup
from trilogue.broker.groups.consumer.records import decode_group, decode_member
from trilogue.broker.groups.group import CONSUMER, CONSUMER_PROTOCOL
from trilogue.broker.groups.membership import GROUP, Rows
from trilogue.broker.groups.reconciliation import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from trilogue.broker.groups.registry import GroupRegistry
from trilogue.broker.topics.cluster import Cluster, TopicEvent
from trilogue.broker.topics.topic import Topic


def no_override(_group: str, _key: str) -> int | None:
    """Return no override: the settings hold for every group."""
    return None


class ConsumerGroupRegistry:
    """The consumer groups' front: every call names its group."""

    def __init__(
        self,
        settings: ConsumerGroupSettings,
        groups: GroupRegistry,
        cluster: Cluster,
        *,
        assignment_codec: AssignmentCodec = NO_CODEC,
        get_override: Callable[[str, str], int | None] = no_override,
    ) -> None:
        self.settings = settings
        self._assignment_codec = assignment_codec
        self._get_override = get_override
        self._groups = groups
        self.context = ConsumerGroupContext(cluster, groups.timers, GroupLoad(settings.total_max))
        cluster.listeners.append(self._note)

    def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatResponse:
        """Hear a member; make its group when it is the first."""
        check_heartbeat(heartbeat, self.settings)
        group = self._find(heartbeat)
        answer = group.consumer_heartbeat(heartbeat)
        self._groups.note_occupied(group, heartbeat.creator)
        return answer

    def find_group(self, name: str) -> MixedGroup:
        """Return a consumer group; raises UnknownGroup."""
        group = self._groups.find_group(name)
        if group is None:
            record = self._groups.records.get(name)
            if record is not None and record.type == CONSUMER:
                return self._make_group(name)  # known from before a restart, without members
            raise UnknownGroup(f"Group {name} not found.")
        if not isinstance(group, MixedGroup):
            raise UnknownGroup(f"Group {name} is not a consumer group.")
        return group

    def restore(self, name: str, rows: Rows) -> None:
        """Let a consumer group go on with the members that are stored; CorruptLog."""
        members = [
            decode_member(member_id, row) for member_id, row in rows.items() if member_id != GROUP
        ]
        group = self._make_group(name)
        group.restore(decode_group(rows[GROUP]), members)
        self._groups.replace(name, group)

    def _find(self, heartbeat: Heartbeat) -> MixedGroup:
        found = self._groups.find_group(heartbeat.group)
        if heartbeat.epoch == JOIN_EPOCH:
            self._groups.check_share(found, heartbeat.creator)
        if isinstance(found, MixedGroup):
            return found
        if heartbeat.epoch in {LEAVE_EPOCH, STATIC_LEAVE_EPOCH}:
            return self.find_group(heartbeat.group)
        if heartbeat.epoch != JOIN_EPOCH:
            raise UnknownMember(
                f"member {heartbeat.member_id} is not a member of group {heartbeat.group}"
            )
        if not self._groups.is_free(heartbeat.group, CONSUMER):
            raise UnknownGroup(f"Group {heartbeat.group} is not a consumer group.")
        group = self._make_group(heartbeat.group)
        if isinstance(found, ClassicGroup) and not found.is_empty:
            self._check_upgrade(found)
            group.adopt(found)
            found.dissolve()
        self._groups.replace(heartbeat.group, group)
        return group

    def _make_group(self, name: str) -> MixedGroup:
        group = MixedGroup(
            name, self.settings, self._groups, self.context, assignment_codec=self._assignment_codec
        )
        group.get_override = partial(self._get_override, name)
        return group

    def _check_upgrade(self, group: ClassicGroup) -> None:
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

    def _note(self, event: TopicEvent, topic: Topic) -> None:
        self.context.note(topic.name, gone=event is TopicEvent.DELETED)
