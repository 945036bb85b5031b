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
    """Return the versions of all subjects that the client may see."""
    subjects, prefix, found = request.broker.subjects, request.text("subjectPrefix"), []
    for name in sorted(subjects.names()):
        if not name.startswith(prefix) or not request.can_see_subject(name):
            continue
        versions = subjects.versions(subjects.find_subject(name), deleted=request.flag("deleted"))
        found += [
            (name, each) for each in (versions[-1:] if request.flag("latestOnly") else versions)
        ]
    page = request.page(found)
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
    source, users = _find(request)
    found = describe_source(_formatted(request, source, users))
    if request.flag("fetchMaxId"):
        found["maxId"] = max(request.broker.subjects.ids())
    return found


def get_schema_text(request: RegistryRequest) -> object:
    """Return the schema of an id, and nothing else."""
    source, users = _find(request)
    return encode_text(_formatted(request, source, users))


def list_subjects(request: RegistryRequest) -> object:
    """Return the subjects that have an id."""
    _, users = _find(request)
    return request.page(sorted({name for name, _ in _shown(request, users)}))


def list_versions(request: RegistryRequest) -> object:
    """Return the versions that have an id."""
    _, users = _find(request)
    shown = _shown(request, users)
    return request.page([{"subject": name, "version": each.number} for name, each in shown])


Users = list[tuple[str, SubjectVersion]]  # subjects and versions


def _shown(request: RegistryRequest, users: Users) -> Users:
    """Return those that were not deleted, or all if the client wants them."""
    deleted = request.flag("deleted")
    return [(name, each) for name, each in users if deleted or not each.is_deleted]


def _formatted(request: RegistryRequest, source: SchemaSource, users: Users) -> SchemaSource:
    """Return a source in the format of the query, from the definition of a version with its id."""
    if not request.text("format"):
        return source
    if users:
        return request.formatted(source, users[0][1].schema.definition)
    resolved = request.broker.subjects.resolve(source.references)
    return request.formatted(source, make_definition(source, resolved)[1])


def _find(request: RegistryRequest) -> tuple[SchemaSource, Users]:
    """Return the source of the id of the path, and the versions with it that the client may see.

    A client sees a schema that a subject has which it may see; the cluster's administrators see
    every one, also those of removed subjects.
    """
    text = request.params["id"]
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise RegistryError(404, f"HTTP 404 Not Found: {text[:40]} is no id")
    schema_id, subjects = int(text), request.broker.subjects
    users = list(subjects.users(schema_id))
    seen = [(name, each) for name, each in users if request.can_see_subject(name)]
    if not seen and not request.can_see(*CLUSTER):
        name = find_resource(users[0][0]) if users else ""
        request.access.record_refusal(request.operation, ResourceKind.TOPIC, name)
        raise AccessDenied(request.operation, Resource(ResourceKind.TOPIC, ""))
    try:
        source = subjects.source_by_id(schema_id)
    except UnknownSchema as error:
        raise RegistryError(SCHEMA_NOT_FOUND, str(error)) from error
    return source, seen
