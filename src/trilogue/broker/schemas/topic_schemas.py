"""The schemas of topics: numbered versions from 0, immutable, stored with the topic.

Each version is one setting in meta (schemas/version_rows.py). The versions that the subject
`<topic>-value` of the schema registry got before the topic existed are the first ones of the topic.

Deleting a topic's schema adds a version marked as deleted; the versions before it are no longer
valid and not shown, but their numbers are not reused, because messages on disk have them. All of
them are removed with the topic, or by an explicit purge (`plan_purge`).

Changes are decided here and returned as a `MetadataChange`. Two clients that add a schema at the
same time both take the next number; the second gets `ConcurrentChange` and decides again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trilogue.broker.errors import (
    ConcurrentChange,
    IncompatibleSchema,
    InvalidSchema,
    UnknownSchema,
)
from trilogue.broker.metadata_change import MetadataChange
from trilogue.broker.names import TopicName, format_kafka
from trilogue.broker.schemas.compatibility import (
    Definition,
    check_compatible,
    check_definition,
    is_same,
)
from trilogue.broker.schemas.version_rows import (
    SUBJECT_KEY,
    TOPIC_KEY,
    NumberedSchema,
    Schema,
    VersionRows,
    encode_row,
    subject_owner,
    topic_owner,
    version_key,
)
from trilogue.broker.topics.policies import CompatibilityStrategy
from trilogue.broker.topics.topic import Topic
from trilogue.meta.operations import DeleteSetting, Op, PutSetting, SettingIs, TopicIs

KEYS = (TOPIC_KEY, SUBJECT_KEY)
VALUE_SUFFIX = "-value"  # of the subject that is the schema of a topic's messages
VERSIONS_MAX = 1_000  # of a topic, deletions included
SIZE_MAX = 8 << 20  # of all versions of a topic
ALL_SIZE_MAX = 128 << 20  # of all versions of all topics and subjects
NAME_MAX = 1_024


def check_schema(
    definition: Definition, current: Sequence[NumberedSchema], strategy: CompatibilityStrategy
) -> int | None:
    """Return the version that a schema has already, or None for one that may be added.

    Raises InvalidSchema, or IncompatibleSchema under the strategy. Depends on nothing but its
    arguments, so a schema that `is_slow_to_check` may be checked in another thread.
    """
    check_definition(definition)
    for version, schema in current:
        if is_same(definition, schema.definition):
            return version
    check_compatible(definition, [schema.definition for _, schema in current], strategy)
    return None


def check_reader_schema(
    definition: Definition, current: Sequence[NumberedSchema], strategy: CompatibilityStrategy
) -> None:
    """Check a consumer's schema, which is not stored: it must read the topic's versions.

    A transitive or constant strategy holds as it is; any other is taken as BACKWARD.
    """
    check_definition(definition)
    if not current:
        raise IncompatibleSchema("the topic does not have a schema to check, and is in use")
    if strategy not in _STRATEGIES_OF_READERS:
        strategy = CompatibilityStrategy.BACKWARD
    check_compatible(definition, [schema.definition for _, schema in current], strategy)


_STRATEGIES_OF_READERS = frozenset(
    {
        CompatibilityStrategy.ALWAYS_COMPATIBLE,
        CompatibilityStrategy.ALWAYS_INCOMPATIBLE,
        CompatibilityStrategy.BACKWARD_TRANSITIVE,
        CompatibilityStrategy.FULL_TRANSITIVE,
    }
)


class SchemaRegistry:
    """All versions of all topics' schemas, in memory as in meta."""

    def __init__(self, settings: Mapping[str, str], now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.rows = VersionRows()
        self._pending: dict[bytes, set[int]] = {}  # versions that are being recorded
        for key, text in settings.items():
            if key.startswith(KEYS):
                self.apply_setting(key, text)

    # -- versions

    def versions(self, topic: Topic) -> list[NumberedSchema]:
        """Return all versions, in order, with deletions and what they deleted."""
        return self.rows.numbered(_owners(topic))

    def current(self, topic: Topic) -> list[NumberedSchema]:
        """Return the versions since the last deletion, in order."""
        return select_current(self.versions(topic))

    def newest(self, topic: Topic) -> NumberedSchema:
        """Return the newest version; UnknownSchema."""
        current = self.current(topic)
        if not current:
            raise UnknownSchema("the topic has no schema")
        return current[-1]

    def get(self, topic: Topic, version: int) -> Schema:
        """Return one version since the last deletion; UnknownSchema."""
        for number, schema in self.current(topic):
            if number == version:
                return schema
        raise UnknownSchema(f"the topic has no schema of version {version}")

    def deletion_ops(self, topic: Topic) -> list[Op]:
        """Return the operations that delete a topic's versions, pending ones included."""
        subject, owner = _owners(topic)
        known = {*self.rows.rows(owner), *self._pending.get(topic.topic_id, ())}
        return [
            *(
                DeleteSetting(version_key(subject, each))
                for each in sorted(self.rows.rows(subject))
            ),
            *(DeleteSetting(version_key(owner, version)) for version in sorted(known)),
        ]

    # -- changes

    def plan_add(
        self,
        topic: Topic,
        definition: Definition,
        known: Sequence[NumberedSchema],
        name: str = "",
    ) -> MetadataChange[int]:
        """Return the change that adds a schema which `check_schema` accepted beside `known`.

        ConcurrentChange if the topic has other versions by now.
        """
        if [version for version, _ in known] != [version for version, _ in self.current(topic)]:
            raise ConcurrentChange("the topic's schema was changed meanwhile")
        properties = dict(definition.properties)
        now_ms = self._now_ms()
        return self._plan_next(
            topic,
            Schema(definition.kind, definition.data, properties, name[:NAME_MAX], now_ms),
        )

    def plan_delete(self, topic: Topic) -> MetadataChange[int]:
        """Return the change after which the topic has no schema."""
        self.newest(topic)
        return self._plan_next(topic, Schema("NONE", time_ms=self._now_ms(), deleted=True))

    def plan_purge(self, topic: Topic) -> MetadataChange[None]:
        """Return the change that removes all versions: numbers begin at 0 again.

        Messages written with one of them can no longer be decoded with it.
        """
        return MetadataChange(
            lambda: self.deletion_ops(topic),
            (topic_is(topic),),
            lambda: self.forget(topic),
            on_conflict=ConcurrentChange("the topic was changed meanwhile"),
        )

    def forget(self, topic: Topic) -> None:
        """Remove the versions of a deleted topic."""
        for owner in _owners(topic):
            self.rows.remove(owner)

    # -- inside

    def apply_setting(self, key: str, text: str | None) -> None:
        """Apply a version from meta; None: it was deleted."""
        self.rows.apply_setting(key, text)

    def next_version(self, owners: Sequence[str], schema: Schema) -> int:
        """Return the number of a version that is added; InvalidSchema: there are too many."""
        if not schema.deleted and self.rows.size_bytes + schema.size > ALL_SIZE_MAX:
            raise InvalidSchema(
                f"all schemas of topics and subjects have at most {ALL_SIZE_MAX} bytes"
            )
        return _next_version(self.rows.numbered(owners), schema)

    def _plan_next(self, topic: Topic, schema: Schema) -> MetadataChange[int]:
        version = self.next_version(_owners(topic), schema)
        subject, owner = _owners(topic)

        def apply() -> int:
            self.rows.put(owner, version, schema)
            return version

        key = version_key(owner, version)
        change = MetadataChange(
            lambda: [PutSetting(key, encode_row(schema))],
            (
                SettingIs(key, None),
                SettingIs(version_key(subject, version), None),
                topic_is(topic),
            ),
            apply,
            on_conflict=ConcurrentChange("the topic or its schema was changed meanwhile"),
        )
        self.watch(topic, version, change)
        return change

    def watch(self, topic: Topic, version: int, change: MetadataChange[int]) -> None:
        """Count a version as pending until the change that adds it is settled."""
        self._pending.setdefault(topic.topic_id, set()).add(version)
        change.done.then(lambda _: self._settle(topic.topic_id, version))

    def _settle(self, topic_id: bytes, version: int) -> None:
        pending = self._pending.get(topic_id, set())
        pending.discard(version)  # two clients may have taken it
        if not pending:
            self._pending.pop(topic_id, None)


def select_current(versions: Sequence[NumberedSchema]) -> list[NumberedSchema]:
    """Return the versions since the last deletion that were not deleted one by one."""
    found: list[NumberedSchema] = []
    for version, schema in versions:
        if schema.deleted:
            found.clear()
        elif not schema.hidden:
            found.append((version, schema))
    return found


def _next_version(there: Sequence[NumberedSchema], schema: Schema) -> int:
    if len(there) >= VERSIONS_MAX:
        raise InvalidSchema(f"a topic has at most {VERSIONS_MAX} versions of its schema")
    if sum(each.size for _, each in there) + schema.size > SIZE_MAX:
        raise InvalidSchema(f"all schemas of a topic have at most {SIZE_MAX} bytes")
    return there[-1][0] + 1 if there else 0


def value_subject(name: TopicName) -> str:
    """Return the subject that is the schema of a topic's messages."""
    return format_kafka(name) + VALUE_SUFFIX


def topic_is(topic: Topic) -> TopicIs:
    """Return the precondition that a topic was not changed."""
    name, row = topic.name, topic.row
    return TopicIs(name.tenant, name.namespace, name.name, row.topic_id, row.epoch)


def _owners(topic: Topic) -> tuple[str, str]:
    """Return the owners of a topic's versions: its subject, from before it existed, and itself."""
    return subject_owner(value_subject(topic.name)), topic_owner(topic.topic_id)
