"""All share groups of this node, by name (groups/kind_registry.py), and what holds for each."""

from __future__ import annotations

from functools import partial

from trilogue.broker.groups.consumer.context import ConsumerGroupContext
from trilogue.broker.groups.group import SHARE
from trilogue.broker.groups.kind_registry import GroupKindRegistry
from trilogue.broker.groups.membership import GROUP, Rows
from trilogue.broker.groups.registry import GroupRegistry
from trilogue.broker.groups.share.group import ShareGroup, ShareGroupSettings
from trilogue.broker.groups.share.members import ShareHeartbeat, ShareHeartbeatResponse
from trilogue.broker.groups.share.partition import ShareLimits
from trilogue.broker.groups.share.records import decode_group, decode_member
from trilogue.broker.settings.broker_values import GroupValues

AUTO_OFFSET_RESET, ISOLATION_LEVEL = "share.auto.offset.reset", "share.isolation.level"
DELIVERY_COUNT_LIMIT = "share.delivery.count.limit"
RECORD_LOCK_MS = "share.record.lock.duration.ms"
RECORD_LOCKS_MAX = "share.partition.max.record.locks"
RENEW_ENABLE = "share.renew.acknowledge.enable"


class ShareGroupRegistry(GroupKindRegistry[ShareGroup]):
    """The share groups' front: every call names its group."""

    group_class, type, kind = ShareGroup, SHARE, "share group"

    def __init__(
        self,
        settings: ShareGroupSettings,
        groups: GroupRegistry,
        context: ConsumerGroupContext,
        values: GroupValues,
    ) -> None:
        super().__init__(groups)
        self.settings = settings
        self._context = context
        self._values = values

    # -- members

    def heartbeat(self, heartbeat: ShareHeartbeat) -> ShareHeartbeatResponse:
        """Process a heartbeat of a member; the first one creates the group."""
        group = self.find_for_heartbeat(
            heartbeat.group, heartbeat.member_id, heartbeat.epoch, heartbeat.creator
        )
        response = group.share_heartbeat(heartbeat)
        self.groups.note_occupied(group, heartbeat.creator)
        return response

    def create_group(self, name: str) -> ShareGroup:
        """Return a share group; one without members where the name is free, else UnknownGroup."""
        if self.groups.find_group(name) is None and self.groups.records.get(name) is None:
            group = self.make_group(name)
            self.groups.replace(name, group)
            self.groups.records.mark_empty(name, SHARE, SHARE)
            group.store_epoch()
        return self.find_group(name)

    def restore(self, name: str, rows: Rows) -> None:
        """Let a share group go on with the members that are stored; CorruptLog."""
        members = [
            decode_member(member_id, row) for member_id, row in rows.items() if member_id != GROUP
        ]
        group = self.make_group(name)
        group.restore(decode_group(rows[GROUP]), members)
        self.groups.replace(name, group)

    def make_group(self, name: str) -> ShareGroup:
        """Return a new group, which is not registered."""
        get_override = partial(self._values.number, name)
        return ShareGroup(name, self.settings, self.groups, self._context, get_override)

    # -- what holds for a group

    def limits(self, group: str) -> ShareLimits:
        """Return the limits of a group's records."""
        number, settings = self._values.number, self.settings
        return ShareLimits(
            number(group, DELIVERY_COUNT_LIMIT) or settings.delivery_count_limit,
            number(group, RECORD_LOCK_MS) or settings.record_lock_ms,
            number(group, RECORD_LOCKS_MAX) or settings.record_locks_max,
        )

    def offset_reset(self, group: str) -> str:
        """Return where a group begins to read a partition: `latest`, `earliest`, by_duration:..."""
        return self._values.text(group, AUTO_OFFSET_RESET)

    def is_committed_only(self, group: str) -> bool:
        """Whether a group reads committed records only."""
        return self._values.text(group, ISOLATION_LEVEL) == "read_committed"

    def may_renew(self, group: str) -> bool:
        """Whether members of a group may renew their locks."""
        return self._values.text(group, RENEW_ENABLE) == "true"
