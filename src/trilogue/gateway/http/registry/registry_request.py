"""One request to the schema registry, and its errors: {"error_code": 40401, "message": "…"}.

A handler is a function `(request) -> result`, or a coroutine; its result is the JSON of the reply.
Codes and messages are those of Confluent's registry.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from enum import Enum
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace
from starlette.requests import Request

from trilogue.broker.access.authorizer import CLUSTER, Operation, ResourceKind
from trilogue.broker.access.client_access import ClientAccess
from trilogue.broker.errors import ConcurrentChange, InvalidName
from trilogue.broker.schemas.compatibility import SIZE_MAX, Definition
from trilogue.broker.schemas.sources import (
    AVRO,
    LANGUAGES,
    PROTOBUF,
    Reference,
    SchemaSource,
    encode_descriptor,
)
from trilogue.broker.schemas.subjects import Subject, SubjectVersion, find_resource
from trilogue.gateway.dependencies import ProtocolGateway
from trilogue.gateway.http.administration import ATTEMPTS, AuthorizedRequest
from trilogue.gateway.http.escaped_paths import SLASH
from trilogue.gateway.steps import next_step

T = TypeVar("T")
LATEST = ("latest", "-1")
PAGE_MAX = 10_000  # entries of a list
SUBJECT_WORK = 1_000  # of a list: looking up the versions of a subject takes as long as
STEP_WORK = 256 << 10  # reading so many bytes of definitions; others are served after it

SUBJECT_NOT_FOUND, VERSION_NOT_FOUND, SCHEMA_NOT_FOUND = 40401, 40402, 40403
SUBJECT_SOFT_DELETED, SUBJECT_NOT_SOFT_DELETED = 40404, 40405
VERSION_SOFT_DELETED, VERSION_NOT_SOFT_DELETED = 40406, 40407
SUBJECT_CONFIG_NOT_FOUND, SUBJECT_MODE_NOT_FOUND = 40408, 40409
INVALID_SCHEMA, INVALID_VERSION, INVALID_COMPATIBILITY, INVALID_MODE = 42201, 42202, 42203, 42204
OPERATION_NOT_PERMITTED, REFERENCE_EXISTS, INVALID_SUBJECT = 42205, 42206, 42208
INCOMPATIBLE, STORE_ERROR = 409, 50001


class RegistryError(Exception):
    """An error of the registry; the first three digits of its code are the status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status = int(str(code)[:3])


class SchemaBody(msgspec.Struct, rename="camel"):
    """A schema as it is posted; other fields are not used."""

    schema: str
    schema_type: str | None = None
    references: list[Reference] | None = None
    id: int | None = None
    version: int | None = None
    metadata: Any = None
    rule_set: Any = None


class Scope(Enum):
    """What the client of a route needs access to."""

    SUBJECT = "the topic of the subject in the path"
    CLUSTER = "the cluster"
    LISTED = "each subject that the reply names, checked by the handler"
    NOTHING = "nothing: the reply is the same on every broker"


class RegistryRequest(AuthorizedRequest):
    """A request of a client that may do the operation of its route."""

    __slots__ = ("access", "body", "gateway", "http", "operation", "params")

    def __init__(
        self, gateway: ProtocolGateway, http: Request, body: bytes, operation: Operation
    ) -> None:
        self.gateway = gateway
        self.http = http
        self.body = body
        self.operation = operation
        self.access: ClientAccess = http.scope["access"]  # of login.py
        self.params: dict[str, str] = {
            name: text.replace(SLASH, "/") for name, text in http.path_params.items()
        }

    # -- access

    def check_scope(self, scope: Scope) -> None:
        """Check the access that a route needs; raises AccessDenied."""
        if scope is Scope.SUBJECT:
            self.check_access(ResourceKind.TOPIC, find_resource(self.params["subject"]))
        elif scope is Scope.CLUSTER:
            self.check_access(*CLUSTER)

    def can_see_subject(self, name: str) -> bool:
        """Return whether the client may do the operation to a subject of a list."""
        return self.can_see(ResourceKind.TOPIC, find_resource(name))

    def can_reference(self, name: str) -> bool:
        """Return whether the client may describe a subject that its schema references."""
        return self.access.can_see(Operation.DESCRIBE, ResourceKind.TOPIC, find_resource(name))

    async def visible_subjects(
        self, *, deleted: bool
    ) -> AsyncIterator[tuple[str, list[SubjectVersion]]]:
        """Iterate, in steps, over the subjects of a list that the client may see.

        With the versions of each; `deleted`: those that were deleted, too.
        """
        subjects, prefix, work = self.broker.subjects, self.text("subjectPrefix"), 0
        for name in sorted(subjects.names()):
            work += SUBJECT_WORK
            if name.startswith(prefix) and self.can_see_subject(name):
                versions = subjects.versions(subjects.find_subject(name), deleted=deleted)
                yield name, versions
                work += sum(each.schema.size for each in versions if not each.schema.schema_id)
            if work > STEP_WORK:
                work = 0
                await next_step()

    async def visible_users(self, schema_id: int) -> list[tuple[str, SubjectVersion]]:
        """Return, in steps, the subjects and versions with an id that the client may see."""
        found: list[tuple[str, SubjectVersion]] = []
        for each in self.broker.subjects.users(schema_id, self.can_see_subject):
            found.append(each)
            if len(found) % (STEP_WORK // SUBJECT_WORK) == 0:
                await next_step()
        return found

    # -- what it carries

    def json(self, kind: type[T]) -> T:
        """Return the body as JSON of this type; raises RegistryError."""
        try:
            return msgspec.json.decode(self.body, type=kind, strict=False)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RegistryError(422, f"the body cannot be read: {error}") from error

    def flag(self, name: str) -> bool:
        """Return a boolean query parameter."""
        return self.http.query_params.get(name, "").lower() == "true"

    def text(self, name: str) -> str:
        """Return a query parameter."""
        return self.http.query_params.get(name, "")

    def page(self, items: Sequence[T]) -> Sequence[T]:
        """Return the part of a list that `offset` and `limit` select."""
        selected = self.selected()
        return items[selected.start : selected.stop]

    def selected(self) -> range:
        """Return the places of a list that `offset` and `limit` select."""
        offset, limit = self._count("offset", 0), self._count("limit", -1)
        return range(offset, offset + (PAGE_MAX if limit < 0 else min(limit, PAGE_MAX)))

    def _count(self, name: str, default: int) -> int:
        text = self.http.query_params.get(name, str(default))
        if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) <= 9):
            raise RegistryError(422, f"{name} is a number")
        return max(int(text), -1) if name == "limit" else max(int(text), 0)

    def source(self) -> SchemaSource:
        """Return the schema of the body; raises RegistryError."""
        body = self.json(SchemaBody)
        language = body.schema_type or AVRO
        if language not in LANGUAGES:
            raise RegistryError(INVALID_SCHEMA, f"Invalid schema type {language[:40]}")
        if len(body.schema) > SIZE_MAX:
            raise RegistryError(INVALID_SCHEMA, f"a schema has at most {SIZE_MAX} characters")
        if body.metadata or body.rule_set:
            raise RegistryError(INVALID_SCHEMA, "metadata and rule sets are not served")
        if (body.id or -1) > 0:
            raise RegistryError(OPERATION_NOT_PERMITTED, "an id is given only in mode IMPORT")
        return SchemaSource(body.schema, language, tuple(body.references or ()))

    def formatted(self, source: SchemaSource, definition: Definition) -> SchemaSource:
        """Return a source in the format of the query.

        `serialized`: a descriptor in base64, of PROTOBUF; `resolved`: without references, of AVRO.
        """
        wanted = self.text("format")
        if wanted == "serialized" and source.language == PROTOBUF:
            return replace(source, text=encode_descriptor(definition))
        if wanted == "resolved" and source.language == AVRO:
            return SchemaSource(definition.data.decode())
        return source

    # -- what it names

    @property
    def subject(self) -> Subject:
        """The subject of the path; raises RegistryError."""
        try:
            return self.broker.subjects.find_subject(self.params["subject"])
        except InvalidName as error:
            raise RegistryError(INVALID_SUBJECT, str(error)) from error

    def subject_versions(self, *, deleted: bool = False) -> list[SubjectVersion]:
        """Return the versions of the subject of the path, at least one; raises RegistryError."""
        found = self.broker.subjects.versions(self.subject, deleted=deleted)
        if not found:
            raise self.subject_not_found()
        return found

    def subject_version(self, *, deleted: bool = False) -> SubjectVersion:
        """Return the version of the path; raises RegistryError."""
        text = self.params["version"]
        is_number = text.isascii() and text.isdigit() and len(text) <= 10
        if text not in LATEST and not (is_number and 0 < int(text) < 1 << 31):
            raise RegistryError(
                INVALID_VERSION,
                f"The specified version '{text[:40]}' is not a valid version id. Allowed values "
                'are between [1, 2^31-1] and the string "latest"',
            )
        found = self.subject_versions(deleted=deleted)
        if text in LATEST:
            return found[-1]
        for each in found:
            if each.number == int(text):
                return each
        raise RegistryError(VERSION_NOT_FOUND, f"Version {text} not found.")

    def subject_not_found(self) -> RegistryError:
        """Return the error of a subject without versions."""
        return RegistryError(SUBJECT_NOT_FOUND, f"Subject '{self.params['subject']}' not found.")

    async def number_versions(self, versions: Sequence[SubjectVersion]) -> None:
        """Give ids to versions that Pulsar's clients added."""
        for _ in range(ATTEMPTS):
            change = self.broker.subjects.plan_number(versions)
            if change is None:
                return
            try:
                await self.gateway.write_metadata(change)
            except ConcurrentChange:
                continue
            return
        raise ConcurrentChange("the subjects change too often")


Handler = Callable[[RegistryRequest], Any]


class RegistryRoute(msgspec.Struct, frozen=True):
    """One path: its method, its handler, and the access it needs."""

    method: str
    path: str
    handler: Handler
    operation: Operation
    scope: Scope
