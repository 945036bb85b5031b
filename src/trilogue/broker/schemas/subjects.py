"""Subjects of the schema registry: names under which clients of Confluent's registry find schemas.

The subject `<topic>-value` is the schema of the topic, which Pulsar's clients see as well; its
version n + 1 is version n of the topic. Every other subject, and the one of a topic that does not
exist yet, has versions of its own. When the topic is created they are its first ones.

    schema-ids/<id>             {"text", "language", "references"}     equal sources have one id
    schema-config/<subject>     {"compatibility", "mode"}              "": of all subjects

An id is given when the registry adds or first returns a version; ids are never reused. A version
that was deleted is hidden, and removed when it is deleted permanently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import quote, unquote

import msgspec
from msgspec.structs import replace

from trilogue.broker.errors import (
    ConcurrentChange,
    InUse,
    InvalidName,
    InvalidSchema,
    UnknownSchema,
    UnknownTopicId,
)
from trilogue.broker.metadata_change import MetadataChange, plan_setting
from trilogue.broker.names import TopicName, is_kafka_name, parse_kafka
from trilogue.broker.schemas.compatibility import Definition
from trilogue.broker.schemas.sources import (
    NESTED_MAX,
    REFERENCES_MAX,
    Reference,
    SchemaSource,
    find_source,
)
from trilogue.broker.schemas.topic_schemas import (
    VALUE_SUFFIX,
    SchemaRegistry,
    next_version,
    topic_is,
    value_subject,
)
from trilogue.broker.schemas.version_rows import (
    SUBJECT_KEY,
    TOPIC_KEY,
    Schema,
    encode_row,
    subject_of,
    subject_owner,
    topic_owner,
    version_key,
)
from trilogue.broker.topics.cluster import Cluster
from trilogue.broker.topics.topic import Topic
from trilogue.log.errors import CorruptLog
from trilogue.meta.operations import (
    DeleteSetting,
    Op,
    Precondition,
    PutSetting,
    SettingIs,
    TopicAbsent,
)

ID_KEY, CONFIG_KEY = "schema-ids/", "schema-config/"
KEY_SUFFIX = "-key"
NAME_MAX = 1_024  # characters of a subject
SUBJECTS_MAX = 20_000  # without a topic
IDS_MAX = 100_000
IDS_SIZE_MAX = 128 << 20  # bytes of the texts of all ids
ALL_SUBJECTS = ""


class SubjectConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is set for a subject; None: as for all subjects."""

    compatibility: str | None = None
    mode: str | None = None


class Subject(NamedTuple):
    """A subject, and the topic that it is the schema of, if there is one."""

    name: str
    topic_name: TopicName | None
    topic: Topic | None

    @property
    def owners(self) -> list[str]:
        """The owners of its versions."""
        own = subject_owner(self.name)
        return [own] if self.topic is None else [own, topic_owner(self.topic.topic_id)]


class SubjectVersion(NamedTuple):
    """A version of a subject; `number` counts from 1."""

    owner: str
    number: int
    schema: Schema
    is_deleted: bool

    @property
    def key(self) -> str:
        """The key in meta."""
        return version_key(self.owner, self.number - 1)


class Subjects:
    """All subjects, ids and their configuration, in memory as in meta."""

    def __init__(
        self,
        settings: Mapping[str, str],
        schemas: SchemaRegistry,
        cluster: Cluster,
        now_ms: Callable[[], int],
    ) -> None:
        self._schemas, self._cluster, self._now_ms = schemas, cluster, now_ms
        self._sources: dict[int, SchemaSource] = {}
        self._ids: dict[SchemaSource, int] = {}
        self._last_id = self._ids_size = 0
        self._configs: dict[str, SubjectConfig] = {}
        for key, text in settings.items():
            if key.startswith((ID_KEY, CONFIG_KEY)):
                self.apply_setting(key, text)

    # -- subjects and versions

    def find_subject(self, name: str) -> Subject:
        """Return a subject, which may have no versions, by any spelling; InvalidName."""
        if not 0 < len(name) <= NAME_MAX or not name.isprintable():
            raise InvalidName(f"a subject has 1 to {NAME_MAX} characters that can be printed")
        topic_name = _topic_name(name, VALUE_SUFFIX)
        if topic_name is None:
            return Subject(name, None, None)
        topic = self._cluster.find_topic(topic_name)
        return Subject(value_subject(topic_name), topic_name, topic)

    def names(self) -> Iterator[str]:
        """Iterate over the subjects that have versions, deleted ones included."""
        rows = self._schemas.rows
        own = {subject_of(owner) for owner in rows.owners(SUBJECT_KEY)}
        yield from own
        for topic in self._cluster:
            if rows.rows(topic_owner(topic.topic_id)) and is_kafka_name(topic.name):
                name = value_subject(topic.name)
                if name not in own:
                    yield name

    def versions(self, subject: Subject, *, deleted: bool = False) -> list[SubjectVersion]:
        """Return the versions in order; with `deleted` also those that were deleted."""
        found: list[SubjectVersion] = []
        for owner in subject.owners:
            for version, schema in self._schemas.rows.rows(owner).items():
                found.append(SubjectVersion(owner, version + 1, schema, schema.hidden))
        found.sort(key=lambda each: each.number)
        ends = [each.number for each in found if each.schema.deleted]
        last = ends[-1] if ends else 0
        found = [
            each._replace(is_deleted=each.is_deleted or each.number < last)
            for each in found
            if not each.schema.deleted and self._find_source(each.schema) is not None
        ]
        return [each for each in found if deleted or not each.is_deleted]

    def source(self, version: SubjectVersion) -> SchemaSource:
        """Return the source of a version; UnknownSchema."""
        source = self._find_source(version.schema)
        if source is None:
            raise UnknownSchema("no language of the registry has this type of schema")
        return source

    def _find_source(self, schema: Schema) -> SchemaSource | None:
        known = self._sources.get(schema.schema_id) if schema.schema_id else None
        return known or find_source(schema.definition)

    # -- ids

    def find_id(self, source: SchemaSource) -> int | None:
        """Return the id of a source."""
        return self._ids.get(source)

    def source_by_id(self, schema_id: int) -> SchemaSource:
        """Return the source of an id; UnknownSchema."""
        source = self._sources.get(schema_id)
        if source is None:
            raise UnknownSchema(f"Schema {schema_id} not found")
        return source

    def ids(self) -> Mapping[int, SchemaSource]:
        """Return all ids and their sources."""
        return self._sources

    def users(self, schema_id: int) -> Iterator[tuple[str, SubjectVersion]]:
        """Iterate over the subjects and versions that have an id, deleted ones included."""
        for owner, number in self._schemas.rows.users(schema_id):
            name = self._name_of(owner)
            if name is None:
                continue
            for each in self.versions(self.find_subject(name), deleted=True):
                if each.number == number + 1:
                    yield name, each

    def _name_of(self, owner: str) -> str | None:
        """Return the subject of an owner; None: the topic is being deleted."""
        if not owner.startswith(TOPIC_KEY):
            return subject_of(owner)
        with suppress(UnknownTopicId):
            topic_id = bytes.fromhex(owner.removeprefix(TOPIC_KEY))
            return value_subject(self._cluster.topic_by_id(topic_id).name)
        return None

    def referrers(self, subject: str, numbers: Iterable[int]) -> list[int]:
        """Return the ids in use whose sources reference one of these versions."""
        wanted = set(numbers)
        return [
            schema_id
            for schema_id, source in self._sources.items()
            if any(each.subject == subject and each.version in wanted for each in source.references)
            and any(not each.is_deleted for _, each in self.users(schema_id))
        ]

    def resolve(self, references: Sequence[Reference]) -> dict[str, Definition]:
        """Return the definitions that references name; InvalidSchema."""
        if len(references) > REFERENCES_MAX:
            raise InvalidSchema(f"a schema has at most {REFERENCES_MAX} references")
        self._check_levels(references)
        return {each.name: self._referenced(each).schema.definition for each in references}

    def _referenced(self, reference: Reference) -> SubjectVersion:
        versions = self.versions(self.find_subject(reference.subject), deleted=True)
        for each in reversed(versions):
            if reference.version in {each.number, -1}:
                return each
        raise InvalidSchema(
            f"the reference {reference.name!r} names no version {reference.version} of "
            f"{reference.subject!r}"
        )

    def _check_levels(self, references: Sequence[Reference]) -> None:
        """Refuse references of references of more than NESTED_MAX levels."""
        level = {(each.subject, each.version): each for each in references}
        for _ in range(NESTED_MAX):
            below = (self.source(self._referenced(each)).references for each in level.values())
            level = {(each.subject, each.version): each for found in below for each in found}
            if not level:
                return
        raise InvalidSchema(f"references of more than {NESTED_MAX} levels")

    # -- changes

    def plan_register(
        self,
        subject: Subject,
        source: SchemaSource,
        definition: Definition,
        known: Sequence[SubjectVersion],
    ) -> MetadataChange[int]:
        """Return the change that adds a version, with its id as the result.

        ConcurrentChange if the subject has other versions than `known` by now.
        """
        if known != self.versions(subject):
            raise ConcurrentChange("the subject was changed meanwhile")
        self._check_room(subject)
        schema_id, ops, conditions = self._take_id(source)
        schema = Schema(
            definition.kind,
            definition.data,
            dict(definition.properties),
            time_ms=self._now_ms(),
            schema_id=schema_id,
        )
        version = next_version(self._schemas.rows.numbered(subject.owners), schema)
        keys = [version_key(each, version) for each in subject.owners]
        ops.append(PutSetting(keys[-1], encode_row(schema)))

        def apply() -> int:
            self._apply(ops)
            return schema_id

        change = MetadataChange(
            lambda: ops,
            (*conditions, *_topic_conditions(subject), *(SettingIs(key, None) for key in keys)),
            apply,
            on_conflict=ConcurrentChange("the subject or its topic was changed meanwhile"),
        )
        if subject.topic is not None:
            self._schemas.watch(subject.topic, version, change)
        return change

    def plan_number(self, versions: Sequence[SubjectVersion]) -> MetadataChange[None] | None:
        """Return the change that gives ids to versions without one; None: all have one."""
        ops: list[Op] = []
        conditions: list[Precondition] = []
        made: dict[SchemaSource, int] = {}
        for each in versions:
            source = self.source(each)
            if each.schema.schema_id:
                continue
            schema_id = self.find_id(source) or made.get(source)
            if schema_id is None:
                schema_id, more, wanted = self._take_id(source, skip=len(made))
                made[source] = schema_id
                ops += more
                conditions += wanted
            ops.append(PutSetting(each.key, encode_row(replace(each.schema, schema_id=schema_id))))
            conditions.append(SettingIs(each.key, encode_row(each.schema)))
        return self._plan(ops, conditions) if ops else None

    def plan_hide(self, versions: Sequence[SubjectVersion]) -> MetadataChange[None]:
        """Return the change that deletes versions, which can be seen until they are removed."""
        return self._plan(
            [
                PutSetting(each.key, encode_row(replace(each.schema, hidden=True)))
                for each in versions
            ],
            [SettingIs(each.key, encode_row(each.schema)) for each in versions],
        )

    def plan_remove(
        self, subject: Subject, versions: Sequence[SubjectVersion]
    ) -> MetadataChange[None]:
        """Return the change that removes versions; with the last one the marks of deletions go."""
        gone = {each.key for each in versions}
        conditions = [SettingIs(each.key, encode_row(each.schema)) for each in versions]
        if all(each.key in gone for each in self.versions(subject, deleted=True)):
            for owner in subject.owners:
                for number, schema in self._schemas.rows.rows(owner).items():
                    if schema.deleted:
                        gone.add(version_key(owner, number))
        return self._plan([DeleteSetting(key) for key in sorted(gone)], conditions)

    def _plan(self, ops: Sequence[Op], conditions: Sequence[Precondition]) -> MetadataChange[None]:
        return MetadataChange(
            lambda: ops,
            tuple(conditions),
            lambda: self._apply(ops),
            on_conflict=ConcurrentChange("the subject was changed meanwhile"),
        )

    def _take_id(
        self, source: SchemaSource, skip: int = 0
    ) -> tuple[int, list[Op], list[Precondition]]:
        """Return the id of a source, and what makes a new one durable; InvalidSchema."""
        known = self.find_id(source)
        if known is not None:
            return known, [], []
        size = self._ids_size + len(source.text)
        if len(self._sources) + skip >= IDS_MAX or size > IDS_SIZE_MAX:
            raise InvalidSchema(
                f"the registry has at most {IDS_MAX} schemas of {IDS_SIZE_MAX} bytes together"
            )
        schema_id = self._last_id + 1 + skip
        key = f"{ID_KEY}{schema_id}"
        text = msgspec.json.encode(source).decode()
        return schema_id, [PutSetting(key, text)], [SettingIs(key, None)]

    def _check_room(self, subject: Subject) -> None:
        rows = self._schemas.rows
        if subject.topic is not None or rows.rows(subject_owner(subject.name)):
            return
        if sum(1 for _ in rows.owners(SUBJECT_KEY)) >= SUBJECTS_MAX:
            raise InUse(f"there are {SUBJECTS_MAX} subjects without a topic")

    # -- configuration

    def config(self, name: str) -> SubjectConfig:
        """Return what is set for a subject, or for all subjects."""
        return self._configs.get(name, _NOT_SET)

    def plan_config(self, name: str, config: SubjectConfig) -> MetadataChange[None]:
        """Return the change of what is set."""
        before = self._configs.get(name)
        if before is None and len(self._configs) > SUBJECTS_MAX:
            raise InUse(f"{SUBJECTS_MAX} subjects have a configuration of their own")
        return plan_setting(
            f"{CONFIG_KEY}{quote(name, safe='')}",
            None if before is None else msgspec.json.encode(before).decode(),
            None if config == _NOT_SET else msgspec.json.encode(config).decode(),
            self.apply_setting,
            subject="the configuration",
        )

    # -- inside

    def apply_setting(self, key: str, text: str | None) -> None:
        """Apply an id or a configuration from meta; None: it was removed."""
        try:
            if key.startswith(ID_KEY):
                self._put_id(int(key.removeprefix(ID_KEY)), text)
                return
            name = unquote(key.removeprefix(CONFIG_KEY))
            if text is None:
                self._configs.pop(name, None)
            else:
                self._configs[name] = msgspec.json.decode(text, type=SubjectConfig)
        except ValueError as error:
            raise CorruptLog(f"what meta keeps of {key} cannot be read") from error

    def _put_id(self, schema_id: int, text: str | None) -> None:
        before = self._sources.pop(schema_id, None)
        if before is not None:
            self._ids.pop(before, None)
            self._ids_size -= len(before.text)
        if text is not None:
            source = msgspec.json.decode(text, type=SchemaSource)
            self._sources[schema_id] = source
            self._ids[source] = schema_id
            self._ids_size += len(source.text)
            self._last_id = max(self._last_id, schema_id)

    def _apply(self, ops: Iterable[Op]) -> None:
        """Apply what became durable."""
        for op in ops:
            if not isinstance(op, PutSetting | DeleteSetting):
                continue
            text = op.value if isinstance(op, PutSetting) else None
            if op.key.startswith((ID_KEY, CONFIG_KEY)):
                self.apply_setting(op.key, text)
            else:
                self._schemas.apply_setting(op.key, text)


_NOT_SET = SubjectConfig()


def find_resource(subject: str) -> str:
    """Return the topic, as a resource, that protects a subject.

    `orders-key` and `orders-value` are of the topic `orders`; any other subject is protected as a
    topic of its own name.
    """
    for suffix in (VALUE_SUFFIX, KEY_SUFFIX, ""):
        name = _topic_name(subject, suffix)
        if name is not None:
            return str(name)
    return subject


def _topic_name(subject: str, suffix: str) -> TopicName | None:
    if not subject.endswith(suffix):
        return None
    try:
        return parse_kafka(subject.removesuffix(suffix))
    except InvalidName:
        return None


def _topic_conditions(subject: Subject) -> list[Precondition]:
    """Return the preconditions that the subject's topic was not changed, or is still missing."""
    if subject.topic is not None:
        return [topic_is(subject.topic)]
    if subject.topic_name is not None:
        return [TopicAbsent(*subject.topic_name)]
    return []
