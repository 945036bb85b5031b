"""Overrides of the settings of brokers and groups: one JSON text in meta for each of them.

    kafka/broker/default     {"message.max.bytes": "2000000"}      all nodes
    kafka/broker/1           {}                                    node 1
    kafka/group/orders       {"consumer.session.timeout.ms": ...}  a consumer group

(A topic's overrides are in its own row.) A change is decided here and returned as a
`MetadataChange` whose precondition is that the text did not change meanwhile. Changes of one
resource are made one after the other: `pending_change` returns the promise to wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from trilogue.broker.errors import InUse, InvalidRequest
from trilogue.broker.metadata_change import MetadataChange, plan_setting
from trilogue.broker.promise import Promise
from trilogue.log.errors import CorruptLog

RESOURCES_MAX = 10_000
NO_OVERRIDES: Mapping[str, str] = {}


class Overrides:
    """The overrides of all resources of one kind, by the resource's name."""

    def __init__(
        self, settings: Mapping[str, str], prefix: str, on_change: Callable[[str], None]
    ) -> None:
        self._prefix = prefix
        self._on_change = on_change  # called with the name, once the change is durable
        self._texts: dict[str, str] = {}
        self._overrides: dict[str, dict[str, str]] = {}
        self._pending: dict[str, MetadataChange[None]] = {}
        for key, text in settings.items():
            if key.startswith(prefix):
                self._load(key.removeprefix(prefix), text)

    @property
    def names(self) -> list[str]:
        """The resources that have overrides, in order."""
        return sorted(self._overrides)

    def get(self, name: str) -> Mapping[str, str]:
        """Return the overrides of a resource; empty if it has none."""
        return self._overrides.get(name, NO_OVERRIDES)

    def pending_change(self, name: str) -> Promise[None] | None:
        """Return the promise of a change of this resource that is being recorded, if any."""
        found = self._pending.get(name)
        return None if found is None else found.done

    def plan_replace(self, name: str, overrides: Mapping[str, str]) -> MetadataChange[None]:
        """Return the change that replaces a resource's overrides; the values were checked."""
        if name in self._pending:
            raise InvalidRequest("its settings are being changed")
        if overrides and name not in self._overrides and len(self._overrides) >= RESOURCES_MAX:
            raise InUse(f"settings are kept for {RESOURCES_MAX} at most")
        key = self._prefix + name
        text = msgspec.json.encode(dict(sorted(overrides.items()))).decode()
        before = self._texts.get(name)
        change = plan_setting(key, before, text if overrides else None, self.apply_setting)
        self._pending[name] = change
        change.done.then(lambda _: self._settle(name))
        return change

    def apply_setting(self, key: str, text: str | None) -> None:
        """Apply a setting that this node or another one wrote; None: it was deleted."""
        name = key.removeprefix(self._prefix)
        if text is None:
            self._texts.pop(name, None)
            self._overrides.pop(name, None)
        else:
            self._load(name, text)
        self._on_change(name)

    def _load(self, name: str, text: str) -> None:
        try:
            self._overrides[name] = msgspec.json.decode(text, type=dict[str, str])
        except msgspec.DecodeError as error:
            raise CorruptLog(f"what meta keeps of {self._prefix}{name} cannot be read") from error
        self._texts[name] = text

    def _settle(self, name: str) -> None:
        del self._pending[name]
