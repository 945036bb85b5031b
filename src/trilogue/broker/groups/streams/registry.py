"""All streams groups of this node, by name (groups/kind_registry.py)."""

from __future__ import annotations

from functools import partial

from trilogue.broker.groups.consumer.context import ConsumerGroupContext
from trilogue.broker.groups.group import STREAMS
from trilogue.broker.groups.kind_registry import GroupKindRegistry
from trilogue.broker.groups.membership import GROUP, Rows
from trilogue.broker.groups.registry import GroupRegistry
from trilogue.broker.groups.streams.group import StreamsGroup, StreamsGroupSettings
from trilogue.broker.groups.streams.members import StreamsHeartbeat, StreamsHeartbeatResponse
from trilogue.broker.groups.streams.records import decode_group, decode_member
from trilogue.broker.groups.streams.topic_creation import InternalTopicCreation
from trilogue.broker.settings.broker_values import GroupValues


class StreamsGroupRegistry(GroupKindRegistry[StreamsGroup]):
    """The streams groups' front: every call names its group."""

    group_class, type, kind = StreamsGroup, STREAMS, "streams group"

    def __init__(
        self,
        settings: StreamsGroupSettings,
        groups: GroupRegistry,
        context: ConsumerGroupContext,
        values: GroupValues,
    ) -> None:
        super().__init__(groups)
        self.settings = settings
        self.creation = InternalTopicCreation()
        self._context = context
        self._values = values

    def heartbeat(self, heartbeat: StreamsHeartbeat) -> StreamsHeartbeatResponse:
        """Process a heartbeat of a member; the first one creates the group."""
        group = self.find_for_heartbeat(
            heartbeat.group, heartbeat.member_id, heartbeat.epoch, heartbeat.creator
        )
        response = group.streams_heartbeat(heartbeat)
        self.groups.note_occupied(group, heartbeat.creator)
        return response

    def restore(self, name: str, rows: Rows) -> None:
        """Let a streams group go on with what is stored; CorruptLog."""
        group = self.make_group(name)
        epoch, topology = decode_group(rows[GROUP])
        group.restore(
            epoch,
            topology,
            [decode_member(each, row) for each, row in rows.items() if each != GROUP],
        )
        self.groups.replace(name, group)

    def make_group(self, name: str) -> StreamsGroup:
        """Return a new group, which is not registered."""
        get_override = partial(self._values.number, name)
        return StreamsGroup(name, self.settings, self.groups, self._context, get_override)
