"""The schemas of topics: numbered from 0, never changed, kept with the topic.

Each version stands in meta as one setting:

    schemas/<topic id, hex>/<version>      {"kind", "data", "properties", "name", "time", "deleted"}

Deleting a topic's schema adds a version that says so; what came before it counts no more and is
not told, but its numbers are not given again: messages on disk name them. All of them go with the
topic, or when somebody insists (`plan_forget`).

Changes are decided here and returned as a `Commit`; two who add a schema at the same time both take
the next number, and who was outrun (`Outrun`) decides again on what is there now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from trilogue.broker.commit import Commit
from trilogue.broker.errors import IncompatibleSchema, InvalidSchema, Outrun, UnknownSchema
from trilogue.broker.policies import Strategy
from trilogue.broker.schema_check import (
    Definition,
    check_compatible,
    check_definition,
    is_same,
)
from trilogue.broker.topic import Topic
from trilogue.log.errors import CorruptLog
from trilogue.meta.port import DeleteSetting, Op, PutSetting, SettingIs, TopicIs

KEY = "schemas/"
VERSIONS_MAX = 1_000  # of a topic, deletions included
SIZE_MAX = 8 << 20  # of all versions of a topic
NAME_MAX = 1_024


class Schema(msgspec.Struct, frozen=True, omit_defaults=True):
    """One version. `time_ms` is when it was added."""

    kind: str
    data: bytes = b""
    properties: dict[str, str] = {}
    name: str = ""
    time_ms: int = 0
    deleted: bool = False

    @property
    def definition(self) -> Definition:
        """What is compared."""
        return Definition(self.kind, self.data, tuple(self.properties.items()))


Numbered: TypeAlias = tuple[int, Schema]  # with its version


def judge(definition: Definition, current: Sequence[Numbered], strategy: Strategy) -> int | None:
    """Return the version that a schema has already, or None for one that may be added.

    InvalidSchema, or IncompatibleSchema where it does not go with those there are. Depends on
    nothing but its arguments: one that `is_long` is for another thread.
    """
    check_definition(definition)
    for version, schema in current:
        if is_same(definition, schema.definition):
            return version
    check_compatible(definition, [schema.definition for _, schema in current], strategy)
    return None


def judge_reader(definition: Definition, current: Sequence[Numbered], strategy: Strategy) -> None:
    """The same for a reader's schema, which is not kept: it must read what there is.

    A strategy that looks at all versions is taken as it is, any other means: reads the newest.
    """
    check_definition(definition)
    if not current:
        raise IncompatibleSchema("the topic does not have a schema to check, and is in use")
    if strategy not in _TAKEN_AS_IT_IS:
        strategy = Strategy.BACKWARD
    check_compatible(definition, [schema.definition for _, schema in current], strategy)


_TAKEN_AS_IT_IS = frozenset(
    {
        Strategy.ALWAYS_COMPATIBLE,
        Strategy.ALWAYS_INCOMPATIBLE,
        Strategy.BACKWARD_TRANSITIVE,
        Strategy.FULL_TRANSITIVE,
    }
)


class Schemas:
    """All versions of all topics' schemas, in memory as in meta."""

    def __init__(self, settings: Mapping[str, str], now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._versions: dict[bytes, dict[int, Schema]] = {}
        self._coming: dict[bytes, set[int]] = {}  # versions that are being recorded
        for key, text in settings.items():
            if key.startswith(KEY):
                topic_id, _, version = key.removeprefix(KEY).partition("/")
                try:
                    schema = msgspec.json.decode(text, type=Schema)
                    self._take(bytes.fromhex(topic_id), int(version), schema)
                except ValueError as error:
                    raise CorruptLog(f"what meta keeps of {key} cannot be read") from error

    # -- what there is

    def all(self, topic: Topic) -> list[Numbered]:
        """All versions, in order; also deletions and what came before them."""
        return sorted(self._versions.get(topic.topic_id, {}).items())

    def current(self, topic: Topic) -> list[Numbered]:
        """The versions since the last deletion, in order."""
        found: list[Numbered] = []
        for version, schema in self.all(topic):
            if schema.deleted:
                found.clear()
            else:
                found.append((version, schema))
        return found

    def newest(self, topic: Topic) -> Numbered:
        """The schema that holds; UnknownSchema."""
        current = self.current(topic)
        if not current:
            raise UnknownSchema("the topic has no schema")
        return current[-1]

    def version(self, topic: Topic, version: int) -> Schema:
        """One version since the last deletion; UnknownSchema."""
        for number, schema in self.current(topic):
            if number == version:
                return schema
        raise UnknownSchema(f"the topic has no schema of version {version}")

    def left(self, topic: Topic) -> list[Op]:
        """What of a topic stands in meta and goes with it, also what is just being recorded."""
        there = {*self._versions.get(topic.topic_id, {}), *self._coming.get(topic.topic_id, ())}
        return [DeleteSetting(_key(topic, version)) for version in sorted(there)]

    # -- changes

    def plan_add(
        self, topic: Topic, definition: Definition, judged: Sequence[Numbered], name: str = ""
    ) -> Commit[int]:
        """Decide to add a schema that `judge` found to be new beside `judged`, and to fit.

        Outrun where the topic has other schemas by now.
        """
        if [version for version, _ in judged] != [version for version, _ in self.current(topic)]:
            raise Outrun("the topic's schema was changed meanwhile")
        properties = dict(definition.properties)
        now_ms = self._now_ms()
        return self._plan_next(
            topic,
            Schema(definition.kind, definition.data, properties, name[:NAME_MAX], now_ms),
        )

    def plan_delete(self, topic: Topic) -> Commit[int]:
        """Decide that the topic has no schema from here on."""
        self.newest(topic)
        return self._plan_next(topic, Schema("NONE", time_ms=self._now_ms(), deleted=True))

    def plan_forget(self, topic: Topic) -> Commit[None]:
        """Decide that the topic never had a schema: numbers begin at 0 again.

        Messages that were written by one cannot be read by it any more.
        """
        name, row = topic.name, topic.row
        return Commit(
            lambda: self.left(topic),
            (TopicIs(name.tenant, name.namespace, name.name, row.topic_id, row.epoch),),
            lambda: self.forget(topic),
            outrun=Outrun("the topic was changed meanwhile"),
        )

    def forget(self, topic: Topic) -> None:
        """The topic is gone."""
        self._versions.pop(topic.topic_id, None)

    # -- inside

    def _plan_next(self, topic: Topic, schema: Schema) -> Commit[int]:
        there = self.all(topic)
        version = there[-1][0] + 1 if there else 0
        text = msgspec.json.encode(schema).decode()
        if len(there) >= VERSIONS_MAX:
            raise InvalidSchema(f"a topic has at most {VERSIONS_MAX} versions of its schema")
        if sum(_size(each) for _, each in there) + _size(schema) > SIZE_MAX:
            raise InvalidSchema(f"all schemas of a topic have at most {SIZE_MAX} bytes")

        def apply() -> int:
            self._take(topic.topic_id, version, schema)
            return version

        key, name, row = _key(topic, version), topic.name, topic.row
        commit = Commit(
            lambda: [PutSetting(key, text)],
            (
                SettingIs(key, None),
                TopicIs(name.tenant, name.namespace, name.name, row.topic_id, row.epoch),
            ),
            apply,
            outrun=Outrun("the topic or its schema was changed meanwhile"),
        )
        self._coming.setdefault(topic.topic_id, set()).add(version)
        commit.done.then(lambda _: self._came(topic.topic_id, version))
        return commit

    def _came(self, topic_id: bytes, version: int) -> None:
        coming = self._coming.get(topic_id, set())
        coming.discard(version)  # two may have wanted it
        if not coming:
            self._coming.pop(topic_id, None)

    def _take(self, topic_id: bytes, version: int, schema: Schema) -> None:
        self._versions.setdefault(topic_id, {})[version] = schema


def _key(topic: Topic, version: int) -> str:
    return f"{KEY}{topic.topic_id.hex()}/{version}"


def _size(schema: Schema) -> int:
    pairs: Sequence[tuple[str, str]] = tuple(schema.properties.items())
    return len(schema.data) + sum(len(key) + len(value) for key, value in pairs)
