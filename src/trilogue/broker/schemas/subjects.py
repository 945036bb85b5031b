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
from typing import Any, NamedTuple
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
IDS_SIZE_MAX = 64 << 20  # bytes of the texts and references of all ids
RESOLVED_MAX = 2_000  # references of a schema, and of those that it references
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
        self._reserved: dict[SchemaSource, int] = {}  # ids of sources that are being recorded
        self._referrers: dict[tuple[str, int], dict[int, None]] = {}  # subject, version -> ids
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
        for owner in rows.owners(TOPIC_KEY):
            topic = self._topic_of(owner)
            if topic is not None and is_kafka_name(topic.name):
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

    @property
    def last_id(self) -> int:
        """The highest id that was given."""
        return self._last_id

    def users(
        self, schema_id: int, can_see: Callable[[str], bool] = lambda _: True
    ) -> Iterator[tuple[str, SubjectVersion]]:
        """Iterate over the subjects and versions that have an id, deleted ones included.

        Those of subjects that the client cannot see are left out.
        """
        for owner, number in list(self._schemas.rows.users(schema_id)):
            name = self._name_of(owner)
            if name is None or not can_see(name):
                continue
            for each in self.versions(self.find_subject(name), deleted=True):
                if each.number == number + 1:
                    yield name, each

    def _name_of(self, owner: str) -> str | None:
        """Return the subject of an owner; None: the topic is being deleted."""
        if not owner.startswith(TOPIC_KEY):
            return subject_of(owner)
        topic = self._topic_of(owner)
        return None if topic is None else value_subject(topic.name)

    def _topic_of(self, owner: str) -> Topic | None:
        with suppress(UnknownTopicId):
            return self._cluster.topic_by_id(bytes.fromhex(owner.removeprefix(TOPIC_KEY)))
        return None

    def referrers(
        self,
        subject: str,
        numbers: Iterable[int],
        can_see: Callable[[str], bool] = lambda _: True,
    ) -> list[int]:
        """Return the ids in use whose sources reference one of these versions.

        Those of subjects that the client cannot see are left out.
        """
        ids = {each for number in numbers for each in self._referrers.get((subject, number), ())}
        return [
            schema_id
            for schema_id in sorted(ids)
            if any(not each.is_deleted for _, each in self.users(schema_id, can_see))
        ]

    def resolve(
        self,
        references: Sequence[Reference],
        can_see: Callable[[str], bool] = lambda _: True,
    ) -> dict[str, Definition]:
        """Return the definitions that references name; InvalidSchema.

        Subjects that the client cannot see are refused like those that do not exist.
        """
        if len(references) > REFERENCES_MAX:
            raise InvalidSchema(f"a schema has at most {REFERENCES_MAX} references")
        for each in references:
            if not can_see(each.subject):
                raise _unknown_reference(each)
            self._referenced(each)
        self._check_levels(references)
        return {each.name: self._referenced(each).schema.definition for each in references}

    def _referenced(self, reference: Reference) -> SubjectVersion:
        owners, rows = self.find_subject(reference.subject).owners, self._schemas.rows
        number, is_latest = reference.version - 1, reference.version == -1
        for owner in reversed(owners):
            found = rows.rows(owner)
            for each in sorted(found, reverse=True) if is_latest else (number,):
                schema = found.get(each)
                if (
                    schema is not None
                    and not schema.deleted
                    and self._find_source(schema) is not None
                ):
                    return SubjectVersion(owner, each + 1, schema, schema.hidden)
        raise _unknown_reference(reference)

    def _check_levels(self, references: Sequence[Reference]) -> None:
        """Refuse references of references of more than NESTED_MAX levels, or of too many."""
        level = {(each.subject, each.version): each for each in references}
        seen: set[tuple[str, int]] = set()
        count = len(references)
        for _ in range(NESTED_MAX):
            seen.update(level)
            below: dict[tuple[str, int], Reference] = {}
            for reference in level.values():
                found = self.source(self._referenced(reference)).references
                count += len(found)
                if count > RESOLVED_MAX:
                    raise InvalidSchema(
                        f"a schema and those that it references have at most {RESOLVED_MAX} "
                        "references together"
                    )
                below.update({(each.subject, each.version): each for each in found})
            level = {key: each for key, each in below.items() if key not in seen}
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
        version = self._schemas.next_version(subject.owners, schema)
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
        if source not in self._ids:
            self._reserve({source: schema_id}, change)
        if subject.topic is not None:
            self._schemas.watch(subject.topic, version, change)
        return change

    def plan_number(self, versions: Sequence[SubjectVersion]) -> MetadataChange[None] | None:
        """Return the change that gives ids to versions without one; None: all have one."""
        ops: list[Op] = []
        conditions: list[Precondition] = []
        made: dict[SchemaSource, int] = {}
        for each in versions:
            schema = self._schemas.rows.rows(each.owner).get(each.number - 1)
            if schema is None or schema.schema_id:  # by now
                continue
            source = self.source(each)
            schema_id = self.find_id(source) or made.get(source)
            if schema_id is None:
                schema_id, more, wanted = self._take_id(source, skip=len(made))
                made[source] = schema_id
                ops += more
                conditions += wanted
            ops.append(PutSetting(each.key, encode_row(replace(schema, schema_id=schema_id))))
            conditions.append(SettingIs(each.key, encode_row(schema)))
        if not ops:
            return None
        change = self._plan(ops, conditions)
        self._reserve(made, change)
        return change

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
        size = self._ids_size + source.size
        if len(self._sources) + skip >= IDS_MAX or size > IDS_SIZE_MAX:
            raise InvalidSchema(
                f"the registry has at most {IDS_MAX} schemas of {IDS_SIZE_MAX} bytes together"
            )
        schema_id = self._reserved.get(source)
        if schema_id is None:
            schema_id = max(self._last_id, *self._reserved.values(), 0) + 1 + skip
        key = f"{ID_KEY}{schema_id}"
        text = msgspec.json.encode(source).decode()
        return schema_id, [PutSetting(key, text)], [SettingIs(key, None)]

    def _reserve(self, made: Mapping[SchemaSource, int], change: MetadataChange[Any]) -> None:
        """Keep ids for sources until the change that records them is settled.

        Others that are recorded at the same time take the next ids, and need not try again.
        """

        def release(_: object) -> None:
            for source in made:
                self._reserved.pop(source, None)

        self._reserved.update(made)
        change.done.then(release)

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
            self._ids_size -= before.size
            for each in before.references:
                self._referrers.get((each.subject, each.version), {}).pop(schema_id, None)
        if text is not None:
            source = msgspec.json.decode(text, type=SchemaSource)
            self._sources[schema_id] = source
            self._ids[source] = schema_id
            self._ids_size += source.size
            for each in source.references:
                by_version = self._referrers.setdefault((each.subject, each.version), {})
                by_version[schema_id] = None
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


def _unknown_reference(reference: Reference) -> InvalidSchema:
    return InvalidSchema(
        f"the reference {reference.name!r} names no version {reference.version} of "
        f"{reference.subject!r}"
    )


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
