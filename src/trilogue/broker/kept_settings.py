"""What was said about settings of things that are no topics: kept in meta, one text per thing.

    kafka/broker/default     {"message.max.bytes": "2000000"}      all nodes
    kafka/broker/1           {}                                    node 1
    kafka/group/orders       {"consumer.session.timeout.ms": ...}  a consumer group

A change is decided here and returned as a `Commit`, which expects that nothing else was said
meanwhile. Changes of one thing follow each other: `altering` lets the next one wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from trilogue.broker.commit import Commit
from trilogue.broker.errors import InUse, InvalidRequest, Outrun
from trilogue.broker.promise import Promise
from trilogue.log.errors import CorruptLog
from trilogue.meta.port import DeleteSetting, Op, PutSetting, SettingIs

THINGS_MAX = 10_000
NOTHING: Mapping[str, str] = {}


class KeptSettings:
    """The settings of all things of one kind, by the name of the thing."""

    def __init__(
        self, settings: Mapping[str, str], prefix: str, changed: Callable[[str], None]
    ) -> None:
        self._prefix = prefix
        self._changed = changed  # called with the name, when it is true
        self._texts: dict[str, str] = {}
        self._kept: dict[str, dict[str, str]] = {}
        self._altering: dict[str, Commit[None]] = {}
        for key, text in settings.items():
            if key.startswith(prefix):
                self._take(key.removeprefix(prefix), text)

    @property
    def names(self) -> list[str]:
        """The things of which something was said, in order."""
        return sorted(self._kept)

    def of(self, name: str) -> Mapping[str, str]:
        """What was said of a thing."""
        return self._kept.get(name, NOTHING)

    def altering(self, name: str) -> Promise[None] | None:
        """Return the promise of a change of this thing that is being recorded right now."""
        found = self._altering.get(name)
        return None if found is None else found.done

    def plan(self, name: str, kept: Mapping[str, str]) -> Commit[None]:
        """Decide what is said of a thing from here on; values were checked."""
        if name in self._altering:
            raise InvalidRequest("its settings are being changed")
        if kept and name not in self._kept and len(self._kept) >= THINGS_MAX:
            raise InUse(f"settings are kept for {THINGS_MAX} at most")
        key = self._prefix + name
        text = msgspec.json.encode(dict(sorted(kept.items()))).decode()
        op: Op = PutSetting(key, text) if kept else DeleteSetting(key)
        commit = Commit(
            lambda: [op],
            (SettingIs(key, self._texts.get(name)),),
            lambda: self._apply(name, text if kept else None),
            outrun=Outrun("it was changed meanwhile"),
        )
        self._altering[name] = commit
        commit.done.then(lambda _: self._over(name))
        return commit

    def _apply(self, name: str, text: str | None) -> None:
        if text is None:
            self._texts.pop(name, None)
            self._kept.pop(name, None)
        else:
            self._take(name, text)
        self._changed(name)

    def _take(self, name: str, text: str) -> None:
        try:
            self._kept[name] = msgspec.json.decode(text, type=dict[str, str])
        except msgspec.DecodeError as error:
            raise CorruptLog(f"what meta keeps of {self._prefix}{name} cannot be read") from error
        self._texts[name] = text

    def _over(self, name: str) -> None:
        del self._altering[name]
