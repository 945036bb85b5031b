"""Schemas by their ids, and the lists of all schemas."""

from __future__ import annotations

from typing import Any

from trilogue.broker.access.authorizer import CLUSTER, Operation, Resource, ResourceKind
from trilogue.broker.errors import AccessDenied, UnknownSchema
from trilogue.broker.schemas.sources import LANGUAGES, SchemaSource, make_definition
from trilogue.broker.schemas.subjects import SubjectVersion, find_resource
from trilogue.gateway.http.registry.registry_request import (
    SCHEMA_NOT_FOUND,
    RegistryError,
    RegistryRequest,
    RegistryRoute,
    Scope,
)
from trilogue.gateway.http.registry.subjects import describe_source, encode_text
from trilogue.gateway.http.request_limits import reserve_memory

LIST_BYTES_MAX = 16 << 20  # of the schemas in one list
ENTRY_BYTES = 256  # of an entry beside its schema, about


def routes() -> list[RegistryRoute]:
    """Return the routes below /schemas, and those of the server itself."""
    one, read = "/schemas/ids/{id}", Operation.DESCRIBE
    rows: list[tuple[str, Any, Scope]] = [
        ("/", get_root, Scope.NOTHING),
        ("/contexts", list_contexts, Scope.NOTHING),
        ("/schemas/types", list_types, Scope.NOTHING),
        ("/schemas", list_schemas, Scope.LISTED),
        (one, get_schema, Scope.LISTED),
        (one + "/schema", get_schema_text, Scope.LISTED),
        (one + "/subjects", list_subjects, Scope.LISTED),
        (one + "/versions", list_versions, Scope.LISTED),
    ]
    return [RegistryRoute("GET", path, handler, read, scope) for path, handler, scope in rows]


def get_root(_request: RegistryRequest) -> object:
    """Return an empty object, as Confluent's registry does."""
    return {}


def list_contexts(_request: RegistryRequest) -> object:
    """Return the only context."""
    return ["."]


def list_types(_request: RegistryRequest) -> object:
    """Return the languages of schemas."""
    return LANGUAGES


async def list_schemas(request: RegistryRequest) -> object:
    """Return the versions of all subjects that the client may see; 422 if they are too large."""
    subjects, selected, latest = (
        request.broker.subjects,
        request.selected(),
        request.flag("latestOnly"),
    )
    page: Users = []
    place = size = 0
    async for name, versions in request.visible_subjects(deleted=request.flag("deleted")):
        for each in versions[-1:] if latest else versions:
            if place in selected:
                page.append((name, each))
                size += subjects.source(each).size + ENTRY_BYTES
            place += 1
        if size > LIST_BYTES_MAX:
            raise RegistryError(
                422, f"more than {LIST_BYTES_MAX} bytes: use limit, offset or subjectPrefix"
            )
        if place >= selected.stop:
            break
    await reserve_memory(request.http, size)
    await request.number_versions([each for _, each in page])
    return [
        {
            "subject": name,
            "version": each.number,
            "id": subjects.find_id(subjects.source(each)),
            **describe_source(subjects.source(each)),
        }
        for name, each in page
    ]


def get_schema(request: RegistryRequest) -> object:
    """Return the schema of an id."""
    source, user = find_schema(request)
    found = describe_source(_formatted(request, source, user))
    if request.flag("fetchMaxId"):
        found["maxId"] = request.broker.subjects.last_id
    return found


def get_schema_text(request: RegistryRequest) -> object:
    """Return the schema of an id, and nothing else."""
    source, user = find_schema(request)
    return encode_text(_formatted(request, source, user))


async def list_subjects(request: RegistryRequest) -> object:
    """Return the subjects that have an id."""
    return request.page(sorted({name for name, _ in await _shown(request)}))


async def list_versions(request: RegistryRequest) -> object:
    """Return the versions that have an id."""
    shown = await _shown(request)
    return request.page([{"subject": name, "version": each.number} for name, each in shown])


Users = list[tuple[str, SubjectVersion]]  # subjects and versions


async def _shown(request: RegistryRequest) -> Users:
    """Return those that have the id of the path and were not deleted, or all if it is wanted."""
    find_schema(request)
    deleted, users = request.flag("deleted"), await request.visible_users(_schema_id(request))
    return [(name, each) for name, each in users if deleted or not each.is_deleted]


def _formatted(
    request: RegistryRequest, source: SchemaSource, user: SubjectVersion | None
) -> SchemaSource:
    """Return a source in the format of the query, from the definition of a version with its id."""
    if not request.text("format"):
        return source
    if user is not None:
        return request.formatted(source, user.schema.definition)
    resolved = request.broker.subjects.resolve(source.references)
    return request.formatted(source, make_definition(source, resolved)[1])


def _schema_id(request: RegistryRequest) -> int:
    text = request.params["id"]
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise RegistryError(404, "HTTP 404 Not Found")
    return int(text)


def find_schema(request: RegistryRequest) -> tuple[SchemaSource, SubjectVersion | None]:
    """Return the source of the id of the path, and a version with it that the client may see.

    A client sees a schema that a subject has which it may see; the cluster's administrators see
    every one, also those of removed subjects.
    """
    schema_id, subjects = _schema_id(request), request.broker.subjects
    user = next(subjects.users(schema_id, request.can_see_subject), None)
    if user is None and not request.can_see(*CLUSTER):
        hidden = next(subjects.users(schema_id), None)
        name = find_resource(hidden[0]) if hidden else ""
        request.access.record_refusal(request.operation, ResourceKind.TOPIC, name)
        raise AccessDenied(request.operation, Resource(ResourceKind.TOPIC, ""))
    try:
        source = subjects.source_by_id(schema_id)
    except UnknownSchema as error:
        raise RegistryError(SCHEMA_NOT_FOUND, str(error)) from error
    return source, None if user is None else user[1]
