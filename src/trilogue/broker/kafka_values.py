"""The values that the broker's own settings have, and who said them.

    said for this node  >  said for all nodes  >  the node's own settings  >  Kafka's default

The first two are said by administration while the node runs and are kept (kept_settings.py); only
rows that act, or are met anyhow, can be said. What a node's own settings come to is told by those
who know: a function per name in `live`, called whenever somebody asks.

What is said for topics that do not say it themselves goes to the cluster at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from itertools import chain

from trilogue.broker.commit import Commit
from trilogue.broker.errors import InvalidRequest, InvalidSetting
from trilogue.broker.kafka_settings import BROKER, GROUPS
from trilogue.broker.kept_settings import KeptSettings
from trilogue.broker.promise import Promise
from trilogue.broker.settings import Change, change_settings

BROKER_PREFIX, GROUP_PREFIX = "kafka/broker/", "kafka/group/"
ALL_NODES = "default"  # the name under which is kept what was said for all nodes

Changes = Iterable[tuple[str, Change, str | None]]
Live = Callable[[], str | None]  # what a node's own settings come to; None: nothing


class Layer(Enum):
    """Where a value comes from, strongest first."""

    THIS_NODE = "said for this node"
    ALL_NODES = "said for all nodes"
    NODE = "the node's own settings"
    DEFAULT = "Kafka's default"


class BrokerValues:
    """All of them, on this node."""

    def __init__(
        self,
        settings: Mapping[str, str],
        node_id: int,
        *,
        topics_obey: Callable[[Mapping[str, str]], None],
    ) -> None:
        self.live: dict[str, Live] = {}
        self.listeners: list[Callable[[], None]] = []  # called when another value holds
        self._node = str(node_id)
        self._topics_obey = topics_obey
        self._kept = KeptSettings(settings, BROKER_PREFIX, self._changed)
        self._tell_topics()

    # -- what holds

    def layers(self, key: str) -> list[tuple[Layer, str]]:
        """Return every value that a setting has, the one that holds first; none if it has none."""
        row = BROKER[key]
        found = [
            (layer, said[key])
            for layer, said in (
                (Layer.THIS_NODE, self._kept.of(self._node)),
                (Layer.ALL_NODES, self._kept.of(ALL_NODES)),
            )
            if key in said
        ]
        live = self.live.get(key)
        own = None if live is None else live()
        if own is not None and (own != row.default or row.null):
            found.append((Layer.NODE, own))
        if not row.null:
            found.append((Layer.DEFAULT, row.default))
        return found

    def value(self, key: str) -> str | None:
        """Return the value that holds."""
        found = self.layers(key)
        return found[0][1] if found else None

    def said(self, *, all_nodes: bool) -> Mapping[str, str]:
        """Return what was said for all nodes, or for this one."""
        return self._kept.of(self._name(all_nodes=all_nodes))

    # -- changes

    def altering(self, *, all_nodes: bool) -> Promise[None] | None:
        """Return the promise of a change that is being recorded right now."""
        return self._kept.altering(self._name(all_nodes=all_nodes))

    def check(self, changes: Changes, *, all_nodes: bool, anew: bool) -> dict[str, str]:
        """Return what will be said after changes, from nothing if `anew`; InvalidRequest."""
        before: Mapping[str, str] = {} if anew else self.said(all_nodes=all_nodes)
        try:
            return change_settings(before, changes, BROKER)
        except InvalidSetting as error:
            raise InvalidRequest(str(error)) from error

    def plan_alter(self, kept: Mapping[str, str], *, all_nodes: bool) -> Commit[None]:
        """Decide what is said from here on; as `check` returned it."""
        return self._kept.plan(self._name(all_nodes=all_nodes), kept)

    # -- inside

    def _name(self, *, all_nodes: bool) -> str:
        return ALL_NODES if all_nodes else self._node

    def _changed(self, name: str) -> None:
        if name in {ALL_NODES, self._node}:
            self._tell_topics()
            for listener in self.listeners:
                listener()

    def _tell_topics(self) -> None:
        here, everywhere = self._kept.of(self._node), self._kept.of(ALL_NODES)
        said = dict(chain(everywhere.items(), here.items()))
        self._topics_obey({BROKER[key].topic: said[key] for key in said if BROKER[key].topic})


class GroupValues:
    """What was said of single KIP-848 groups."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.listeners: list[Callable[[str], None]] = []  # called with the group's name
        self._kept = KeptSettings(settings, GROUP_PREFIX, self._changed)

    @property
    def names(self) -> list[str]:
        """Groups of which something was said, in order."""
        return self._kept.names

    def said(self, group: str) -> Mapping[str, str]:
        """Return what was said of a group."""
        return self._kept.of(group)

    def number(self, group: str, key: str) -> int | None:
        """Return one number that was said of a group; None: `group.` and the name holds."""
        text = self._kept.of(group).get(key)
        return None if text is None else int(text)

    def altering(self, group: str) -> Promise[None] | None:
        """Return the promise of a change that is being recorded right now."""
        return self._kept.altering(group)

    def check(self, group: str, changes: Changes, *, anew: bool) -> dict[str, str]:
        """Return what will be said of a group after changes; InvalidSetting."""
        return change_settings({} if anew else self.said(group), changes, GROUPS)

    def plan_alter(self, group: str, kept: Mapping[str, str]) -> Commit[None]:
        """Decide what is said of a group from here on; as `check` returned it."""
        return self._kept.plan(group, kept)

    def _changed(self, name: str) -> None:
        for listener in self.listeners:
            listener(name)
