"""The values of the broker's settings, and where each comes from.

    override of this node  >  override of all nodes  >  the node's own settings  >  Kafka's default

Administration sets the overrides while the node runs; they are stored (overrides.py), and only
effective and no-op rows accept them. The parts of a node that know what its own settings come to
put a function per key into `live`, which is called for each query.

Overrides that hold for topics are applied to the cluster at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum

from trilogue.broker.errors import InvalidRequest, InvalidSetting
from trilogue.broker.metadata_change import MetadataChange
from trilogue.broker.promise import Promise
from trilogue.broker.settings.broker_table import BROKER, GROUPS
from trilogue.broker.settings.overrides import Overrides
from trilogue.broker.settings.setting import list_values
from trilogue.broker.settings.topic_settings import Change, change_settings

BROKER_PREFIX, GROUP_PREFIX = "kafka/broker/", "kafka/group/"
ALL_NODES = "default"  # the name under which overrides of all nodes are stored

Changes = Iterable[tuple[str, Change, str | None]]
LiveValue = Callable[[], str | None]  # what the node's own settings come to; None: no value


class SettingSource(Enum):
    """The source of a value, strongest first."""

    THIS_NODE = "an override of this node"
    ALL_NODES = "an override of all nodes"
    NODE_SETTINGS = "the node's own settings"
    DEFAULT = "Kafka's default"


class BrokerValues:
    """The values of all settings of BROKER, on this node."""

    def __init__(
        self,
        settings: Mapping[str, str],
        node_id: int,
        *,
        apply_to_topics: Callable[[Mapping[str, str]], None],
    ) -> None:
        self.live: dict[str, LiveValue] = {}
        self.listeners: list[Callable[[], None]] = []  # called when an override has changed
        self._node = str(node_id)
        self._apply_to_topics = apply_to_topics
        self._overrides = Overrides(settings, BROKER_PREFIX, self._overrides_changed)
        self._update_topics()

    # -- values

    def values_by_source(self, key: str) -> list[tuple[SettingSource, str]]:
        """Return every value of a setting, the effective one first; empty if it has none."""
        row = BROKER[key]
        live = self.live.get(key)
        own = None if live is None else live()
        is_own = own is not None and (own != row.default or row.nullable)
        return list_values(
            key,
            (
                (SettingSource.THIS_NODE, self._overrides.get(self._node)),
                (SettingSource.ALL_NODES, self._overrides.get(ALL_NODES)),
                (SettingSource.NODE_SETTINGS, {key: own} if own is not None and is_own else {}),
                (SettingSource.DEFAULT, {} if row.nullable else {key: row.default}),
            ),
        )

    def value(self, key: str) -> str | None:
        """Return the effective value."""
        found = self.values_by_source(key)
        return found[0][1] if found else None

    def overrides(self, *, all_nodes: bool) -> Mapping[str, str]:
        """Return the overrides of all nodes, or those of this one."""
        return self._overrides.get(self._name(all_nodes=all_nodes))

    # -- changes

    def pending_change(self, *, all_nodes: bool) -> Promise[None] | None:
        """Return the promise of a change that is being recorded, if there is one."""
        return self._overrides.pending_change(self._name(all_nodes=all_nodes))

    def check(self, changes: Changes, *, all_nodes: bool, replace: bool) -> dict[str, str]:
        """Return the overrides after changes; InvalidRequest.

        With `replace` the changes are all that is left, otherwise present overrides stay.
        """
        before: Mapping[str, str] = {} if replace else self.overrides(all_nodes=all_nodes)
        try:
            return change_settings(before, changes, BROKER)
        except InvalidSetting as error:
            raise InvalidRequest(str(error)) from error

    def plan_alter(self, overrides: Mapping[str, str], *, all_nodes: bool) -> MetadataChange[None]:
        """Return the change that stores overrides, as `check` returned them."""
        return self._overrides.plan_replace(self._name(all_nodes=all_nodes), overrides)

    def apply_setting(self, key: str, text: str | None) -> None:
        """Apply overrides that another node wrote; None: they were deleted."""
        self._overrides.apply_setting(key, text)

    def refresh(self) -> None:
        """Apply all values again, since some of `live` have changed."""
        self._update_topics()
        for listener in self.listeners:
            listener()

    # -- inside

    def _name(self, *, all_nodes: bool) -> str:
        return ALL_NODES if all_nodes else self._node

    def _overrides_changed(self, name: str) -> None:
        if name in {ALL_NODES, self._node}:
            self.refresh()

    def _update_topics(self) -> None:
        overrides = {**self._overrides.get(ALL_NODES), **self._overrides.get(self._node)}
        self._apply_to_topics(
            {
                BROKER[key].topic_key: value
                for key, value in overrides.items()
                if BROKER[key].topic_key
            }
        )


class GroupValues:
    """The overrides of single consumer groups (KIP-848) and share groups (KIP-932)."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.listeners: list[Callable[[str], None]] = []  # called with the group's name
        self._overrides = Overrides(settings, GROUP_PREFIX, self._overrides_changed)

    @property
    def names(self) -> list[str]:
        """The groups that have overrides, in order."""
        return self._overrides.names

    def overrides(self, group: str) -> Mapping[str, str]:
        """Return the overrides of a group."""
        return self._overrides.get(group)

    def number(self, group: str, key: str) -> int | None:
        """Return a group's override of a number; None: the broker's `group.` setting holds."""
        text = self._overrides.get(group).get(key)
        return None if text is None else int(text)

    def text(self, group: str, key: str) -> str:
        """Return the value of a setting that only groups have: the override, or its default."""
        return self._overrides.get(group).get(key) or GROUPS[key].default

    def pending_change(self, group: str) -> Promise[None] | None:
        """Return the promise of a change that is being recorded, if there is one."""
        return self._overrides.pending_change(group)

    def check(self, group: str, changes: Changes, *, replace: bool) -> dict[str, str]:
        """Return a group's overrides after changes; InvalidSetting."""
        return change_settings({} if replace else self.overrides(group), changes, GROUPS)

    def plan_alter(self, group: str, overrides: Mapping[str, str]) -> MetadataChange[None]:
        """Return the change that stores a group's overrides, as `check` returned them."""
        return self._overrides.plan_replace(group, overrides)

    def apply_setting(self, key: str, text: str | None) -> None:
        """Apply overrides that another node wrote; None: they were deleted."""
        self._overrides.apply_setting(key, text)

    def _overrides_changed(self, name: str) -> None:
        for listener in self.listeners:
            listener(name)
