"""Schemas that a request of the REST proxy names, from the schema registry of this node.

Each lookup is a request to the registry in the name of the client: what it may see and register is
what it may by the registry's own paths. Codecs are kept by id, since the schema of an id stays.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request

from trilogue.broker.access.authorizer import Operation, Resource, ResourceKind
from trilogue.broker.errors import AccessDenied, BrokerError, InvalidSchema
from trilogue.broker.schemas.compatibility import Definition
from trilogue.broker.schemas.sources import SchemaSource, make_definition
from trilogue.broker.schemas.subjects import SubjectVersion, find_resource
from trilogue.gateway.dependencies import ProtocolGateway
from trilogue.gateway.http.kafka_rest.rest_errors import (
    FORBIDDEN,
    INVALID_SCHEMA,
    NO_PAYLOAD_VALUE,
    UNSERIALIZABLE,
    RestError,
)
from trilogue.gateway.http.kafka_rest.schema_codecs import (
    FORMATS,
    HEADER,
    PayloadCodec,
    PayloadError,
    find_record_name,
    make_codec,
)
from trilogue.gateway.http.registry import schemas, subjects
from trilogue.gateway.http.registry.registry_request import (
    INVALID_SCHEMA as INVALID_IN_REGISTRY,
)
from trilogue.gateway.http.registry.registry_request import RegistryError, RegistryRequest, Scope

CODECS_MAX: Final = 200
TOPIC_NAME, RECORD_NAME = "TOPIC_NAME", "RECORD_NAME"
TOPIC_RECORD_NAME: Final = "TOPIC_RECORD_NAME"
STRATEGIES: Final = (TOPIC_NAME, RECORD_NAME, TOPIC_RECORD_NAME)
T = TypeVar("T")


class RegisteredSchema(msgspec.Struct, frozen=True):
    """A schema with its id; subject and version where a request has found it by them."""

    id: int
    language: str
    definition: Definition
    codec: PayloadCodec
    subject: str = ""
    version: int = 0

    def encode(self, value: Any) -> bytes:
        """Return a value with the header of Confluent's serializers; raises RestError 400."""
        try:
            return HEADER.pack(0, self.id) + self.codec.encode(value)
        except PayloadError as problem:
            raise RestError(400, str(problem)) from problem


class SchemaStore:
    """The registry, and the codecs of the schemas that were used last."""

    def __init__(self, gateway: ProtocolGateway) -> None:
        self.gateway = gateway
        self._codecs: OrderedDict[int, PayloadCodec] = OrderedDict()

    async def load_codec(
        self, schema_id: int, language: str, definition: Definition
    ) -> PayloadCodec:
        """Return the codec of an id; raises RestError 42205."""
        found = self._codecs.get(schema_id)
        if found is None:
            loop = asyncio.get_running_loop()
            try:
                found = await loop.run_in_executor(
                    self.gateway.schema_executor, make_codec, language, definition
                )
            except PayloadError as problem:
                raise RestError(INVALID_SCHEMA, f"Invalid schema: {problem}") from problem
            self._codecs[schema_id] = found
            if len(self._codecs) > CODECS_MAX:
                self._codecs.popitem(last=False)
        self._codecs.move_to_end(schema_id)
        return found


class SchemaLookup:
    """The schemas of one request; ids are looked up once."""

    def __init__(self, store: SchemaStore, http: Request) -> None:
        self._store = store
        self._http = http
        self._by_id: dict[int, RegisteredSchema] = {}

    # -- by what a request names

    async def find_by_id(self, schema_id: int) -> RegisteredSchema:
        """Return the schema of an id; raises RestError."""
        found = self._by_id.get(schema_id)
        if found is None:
            request = self._request({"id": str(schema_id)})
            source, user = await self._ask(lambda: _done(schemas.find_schema(request)))
            if user is None:
                definition = await self._define(source)
            else:
                definition = user.schema.definition
            codec = await self._store.load_codec(schema_id, source.language, definition)
            found = RegisteredSchema(schema_id, source.language, definition, codec)
            self._by_id[schema_id] = found
        return found

    async def find_version(self, subject: str, version: str = "latest") -> RegisteredSchema:
        """Return a version of a subject, the latest without a number; raises RestError."""
        request = self._request({"subject": subject, "version": version})

        async def find() -> SubjectVersion:
            request.check_scope(Scope.SUBJECT)
            found = request.subject_version()
            if request.broker.subjects.find_id(request.broker.subjects.source(found)) is None:
                await request.number_versions(request.subject_versions(deleted=True))
                found = request.subject_version()
            return found

        return await self._load(request, await self._ask(find))

    async def register(self, subject: str, language: str, text: str) -> RegisteredSchema:
        """Return the version of a subject with a text, which is added if there is none."""
        body = msgspec.json.encode({"schema": text, "schemaType": language})
        request = self._request({"subject": subject}, Operation.WRITE, body)

        async def add() -> SubjectVersion:
            request.check_scope(Scope.SUBJECT)
            before = request.broker.subjects.last_id
            found: Any = await subjects.register(request)
            if found["id"] > before:
                resource = Resource(ResourceKind.TOPIC, find_resource(subject))
                request.access.record_act("register", resource, path=self._http.url.path)
            known = request.broker.subjects
            for each in reversed(request.subject_versions()):
                if known.find_id(known.source(each)) == found["id"]:
                    return each
            raise RegistryError(UNSERIALIZABLE, f"Subject '{subject}' was deleted meanwhile.")

        return await self._load(request, await self._ask(add))

    async def find_in_subject(self, schema: RegisteredSchema, subject: str) -> RegisteredSchema:
        """Return a schema as a version of a subject; raises RestError where it is none."""
        request = self._request({"subject": subject})

        async def find() -> SubjectVersion:
            request.check_scope(Scope.SUBJECT)
            known = request.broker.subjects
            for each in reversed(request.subject_versions()):
                if known.find_id(known.source(each)) == schema.id:
                    return each
            raise RegistryError(UNSERIALIZABLE, f"schema {schema.id} is not of {subject}")

        return await self._load(request, await self._ask(find))

    # -- by the rules of names

    def find_subject(
        self, strategy: str, topic: str, schema: tuple[str, Definition] | None, *, is_key: bool
    ) -> str:
        """Return the subject by a strategy; `schema` has a language and a definition, if known."""
        if strategy == TOPIC_NAME:
            return f"{topic}-key" if is_key else f"{topic}-value"
        if schema is None:
            reason = f"Cannot use schema_subject_strategy={strategy} without schema_id or schema."
            raise RestError(400, reason)
        name = find_record_name(*schema)
        if not name:
            raise RestError(400, "the schema has no name of a record for its subject")
        return name if strategy == RECORD_NAME else f"{topic}-{name}"

    async def define_text(self, embedded: str, text: str) -> tuple[str, Definition]:
        """Return the language and the definition of a text without references."""
        source = SchemaSource(text, FORMATS[embedded])
        return source.language, await self._ask(lambda: self._define(source))

    # -- messages

    async def decode(self, embedded: str, stored: bytes) -> Any:
        """Return the JSON of a stored key or value; raises RestError."""
        if len(stored) < HEADER.size or stored[0]:
            raise RestError(NO_PAYLOAD_VALUE, "the message has no id of a schema before it")
        found = await self.find_by_id(HEADER.unpack_from(stored)[1])
        if found.language != FORMATS[embedded]:
            raise RestError(NO_PAYLOAD_VALUE, f"the message has a schema of {found.language}")
        try:
            return found.codec.decode(stored[HEADER.size :])
        except PayloadError as problem:
            raise RestError(NO_PAYLOAD_VALUE, str(problem)) from problem

    # -- inside

    def _request(
        self,
        params: dict[str, str],
        operation: Operation = Operation.DESCRIBE,
        body: bytes = b"",
    ) -> RegistryRequest:
        scope = {**self._http.scope, "path_params": params, "query_string": b""}
        return RegistryRequest(self._store.gateway, Request(scope), body, operation)

    async def _load(self, request: RegistryRequest, version: SubjectVersion) -> RegisteredSchema:
        known = request.broker.subjects
        source = known.source(version)
        schema_id = known.find_id(source)
        assert schema_id is not None
        definition = version.schema.definition
        codec = await self._store.load_codec(schema_id, source.language, definition)
        return RegisteredSchema(
            schema_id, source.language, definition, codec, request.subject.name, version.number
        )

    async def _define(self, source: SchemaSource) -> Definition:
        gateway = self._store.gateway
        resolved = gateway.broker.subjects.resolve(source.references)
        loop = asyncio.get_running_loop()
        made = await loop.run_in_executor(
            gateway.schema_executor, make_definition, source, resolved
        )
        return made[1]

    async def _ask(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return what the registry answers; raises RestError."""
        if self._store.gateway.catch_up is not None:
            await self._store.gateway.catch_up()
        try:
            return await work()
        except AccessDenied as problem:
            raise RestError(FORBIDDEN, str(problem)) from problem
        except InvalidSchema as problem:
            raise RestError(INVALID_SCHEMA, f"Invalid schema: {problem}") from problem
        except RegistryError as problem:
            code = INVALID_SCHEMA if problem.code == INVALID_IN_REGISTRY else UNSERIALIZABLE
            raise RestError(code, f"Error serializing message. {problem}") from problem
        except BrokerError as problem:
            raise RestError(UNSERIALIZABLE, f"Error serializing message. {problem}") from problem


async def _done(value: T) -> T:
    return value
