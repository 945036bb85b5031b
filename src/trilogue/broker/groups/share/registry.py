"""All share groups of this node, by name: which one a heartbeat is for, and what holds for each.

The groups themselves are in the registry of all groups (broker/groups/registry.py). The first
member that joins creates the group. A name that belongs to a group of another kind is refused, and
an empty group of another kind without offsets gives up its name.
"""

from __future__ import annotations

from functools import partial

from trilogue.broker.errors import UnknownGroup, UnknownMember
from trilogue.broker.groups.consumer.context import ConsumerGroupContext
from trilogue.broker.groups.group import SHARE
from trilogue.broker.groups.membership import GROUP, Rows
from trilogue.broker.groups.reconciliation import JOIN_EPOCH, LEAVE_EPOCH
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


class ShareGroupRegistry:
    """The share groups' front: every call names its group."""

    def __init__(
        self,
        settings: ShareGroupSettings,
        groups: GroupRegistry,
        context: ConsumerGroupContext,
        values: GroupValues,
    ) -> None:
        self.settings = settings
        self._groups = groups
        self._context = context
        self._values = values

    # -- members

    def heartbeat(self, heartbeat: ShareHeartbeat) -> ShareHeartbeatResponse:
        """Process a heartbeat of a member; the first one creates the group."""
        group = self._find(heartbeat)
        response = group.share_heartbeat(heartbeat)
        if not group.is_empty and self._groups.find_group(heartbeat.group) is group:
            self._groups.on_occupied(group)
        return response

    def find_group(self, name: str) -> ShareGroup:
        """Return a share group; raises UnknownGroup."""
        group = self._groups.find_group(name)
        if group is None:
            record = self._groups.records.get(name)
            if record is not None and record.type == SHARE:
                return self._make_group(name)  # known from before, without members
            raise UnknownGroup(f"Group {name} not found.")
        if not isinstance(group, ShareGroup):
            raise UnknownGroup(f"Group {name} is not a share group.")
        return group

    def create_group(self, name: str) -> ShareGroup:
        """Return a share group; one without members where the name is free, else UnknownGroup."""
        if self._groups.find_group(name) is None and self._groups.records.get(name) is None:
            group = self._make_group(name)
            self._groups.replace(name, group)
            self._groups.records.mark_empty(name, SHARE, SHARE)
            group.store_epoch()
        return self.find_group(name)

    def restore(self, name: str, rows: Rows) -> None:
        """Let a share group go on with the members that are stored; CorruptLog."""
        members = [
            decode_member(member_id, row) for member_id, row in rows.items() if member_id != GROUP
        ]
        group = self._make_group(name)
        group.restore(decode_group(rows[GROUP]), members)
        self._groups.replace(name, group)

    def _find(self, heartbeat: ShareHeartbeat) -> ShareGroup:
        found = self._groups.find_group(heartbeat.group)
        if isinstance(found, ShareGroup):
            return found
        if heartbeat.epoch == LEAVE_EPOCH:
            return self.find_group(heartbeat.group)
        if not self._groups.is_free(heartbeat.group, SHARE):
            raise UnknownGroup(f"Group {heartbeat.group} is not a share group.")
        if heartbeat.epoch != JOIN_EPOCH:
            raise UnknownMember(
                f"member {heartbeat.member_id} is not a member of group {heartbeat.group}"
            )
        group = self._make_group(heartbeat.group)
        self._groups.replace(heartbeat.group, group)
        return group

    def _make_group(self, name: str) -> ShareGroup:
        get_override = partial(self._values.number, name)
        return ShareGroup(name, self.settings, self._groups, self._context, get_override)

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
