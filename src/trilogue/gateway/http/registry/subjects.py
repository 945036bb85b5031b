"""Subjects and their versions: registering, looking up, listing and deleting."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from trilogue.broker.access.authorizer import Operation
from trilogue.broker.errors import ConcurrentChange, IncompatibleSchema
from trilogue.broker.schemas.compatibility import Definition
from trilogue.broker.schemas.sources import (
    AVRO,
    SchemaSource,
    check_change,
    find_resolved,
    make_definition,
)
from trilogue.broker.schemas.subjects import SubjectVersion
from trilogue.broker.topics.policies import CompatibilityStrategy
from trilogue.gateway.http.administration import ATTEMPTS
from trilogue.gateway.http.registry.config import check_writable, find_strategy
from trilogue.gateway.http.registry.registry_request import (
    INCOMPATIBLE,
    REFERENCE_EXISTS,
    SCHEMA_NOT_FOUND,
    SUBJECT_NOT_FOUND,
    SUBJECT_NOT_SOFT_DELETED,
    SUBJECT_SOFT_DELETED,
    VERSION_NOT_FOUND,
    VERSION_NOT_SOFT_DELETED,
    VERSION_SOFT_DELETED,
    RegistryError,
    RegistryRequest,
    RegistryRoute,
    Scope,
)
from trilogue.gateway.pulsar.schemas import run_check


def routes() -> list[RegistryRoute]:
    """Return the routes below /subjects and /compatibility."""
    describe, subject = Operation.DESCRIBE, "/subjects/{subject}"
    one, tried = subject + "/versions/{version}", "/compatibility" + subject + "/versions"
    rows: list[tuple[str, str, Any, Operation]] = [
        ("POST", subject, look_up, describe),
        ("DELETE", subject, delete_subject, Operation.DELETE),
        ("GET", subject + "/versions", list_versions, describe),
        ("POST", subject + "/versions", register, Operation.WRITE),
        ("GET", one, get_version, describe),
        ("DELETE", one, delete_version, Operation.DELETE),
        ("GET", one + "/schema", get_version_text, describe),
        ("GET", one + "/referencedby", list_referrers, describe),
        ("POST", tried, test_all, describe),
        ("POST", tried + "/{version}", test_one, describe),
    ]
    return [
        RegistryRoute("GET", "/subjects", list_subjects, describe, Scope.LISTED),
        *(RegistryRoute(*row, Scope.SUBJECT) for row in rows),
    ]


# ---- reading


async def list_subjects(request: RegistryRequest) -> object:
    """Return the names of subjects."""
    deleted, only = request.flag("deleted"), request.flag("deletedOnly")
    found = []
    async for name, versions in request.visible_subjects(deleted=deleted or only):
        if versions and not (only and any(not each.is_deleted for each in versions)):
            found.append(name)
    return request.page(found)


def list_versions(request: RegistryRequest) -> object:
    """Return the numbers of the versions of a subject."""
    only = request.flag("deletedOnly")
    found = request.subject_versions(deleted=only or request.flag("deleted"))
    return request.page([each.number for each in found if each.is_deleted or not only])


async def get_version(request: RegistryRequest) -> object:
    """Return one version."""
    return await _describe(request, request.subject_version(deleted=request.flag("deleted")))


def get_version_text(request: RegistryRequest) -> object:
    """Return the schema of one version, and nothing else."""
    found = request.subject_version(deleted=request.flag("deleted"))
    return encode_text(request.broker.subjects.source(found))


def list_referrers(request: RegistryRequest) -> object:
    """Return the ids of the schemas that reference one version."""
    found = request.subject_version()
    return request.broker.subjects.referrers(
        request.subject.name, [found.number], request.can_see_subject
    )


async def look_up(request: RegistryRequest) -> object:
    """Return the version of a subject that has a schema."""
    wanted, _ = await _define(request, request.source())
    versions = request.subject_versions(deleted=request.flag("deleted"))
    found = await _find_same(request, wanted, versions)
    if found is None:
        raise RegistryError(SCHEMA_NOT_FOUND, "Schema not found")
    return await _describe(request, found)


async def _find_same(
    request: RegistryRequest, wanted: SchemaSource, versions: list[SubjectVersion]
) -> SubjectVersion | None:
    """Return the version with a source, or else the newest that is it but for its references."""
    with_references: list[SubjectVersion] = []
    for each in versions:
        source = request.broker.subjects.source(each)
        if source == wanted:
            return each
        if source.references and source.language == AVRO:
            with_references.insert(0, each)
    if not with_references or wanted.references or wanted.language != AVRO:
        return None
    work = partial(find_resolved, wanted, [each.schema.definition for each in with_references])
    place = await asyncio.get_running_loop().run_in_executor(request.gateway.schema_executor, work)
    return None if place is None else with_references[place]


async def _describe(request: RegistryRequest, version: SubjectVersion) -> dict[str, Any]:
    subjects, subject = request.broker.subjects, request.subject
    if not version.schema.schema_id:
        await request.number_versions(subjects.versions(subject, deleted=True))
    source = subjects.source(version)
    return {
        "subject": subject.name,
        "version": version.number,
        "id": subjects.find_id(source),
        **describe_source(request.formatted(source, version.schema.definition)),
    }


def describe_source(source: SchemaSource) -> dict[str, Any]:
    """Return the fields of a schema; its type only if it is not AVRO."""
    fields: dict[str, Any] = {"schema": source.text}
    if source.language != AVRO:
        fields["schemaType"] = source.language
    if source.references:
        fields["references"] = source.references
    return fields


def encode_text(source: SchemaSource) -> bytes:
    """Return the schema as the reply of /schema."""
    return source.text.encode()


# ---- registering


async def register(request: RegistryRequest) -> object:
    """Add a schema to a subject; return its id."""
    posted = request.source()
    for _ in range(ATTEMPTS):
        subject, subjects = request.subject, request.broker.subjects
        known = subjects.versions(subject)
        source, definition = await _define(request, posted)
        same = await _find_same(request, source, known)
        if same is not None:
            await request.number_versions(known)
            return {"id": subjects.find_id(subjects.source(same))}
        check_writable(request, subject.name)
        await _check(request, definition, known, find_strategy(request, subject.name))
        try:
            change = subjects.plan_register(subject, source, definition, known)
            await request.gateway.write_metadata(change)
        except ConcurrentChange:
            continue
        return {"id": change.done.result()}
    raise ConcurrentChange("the subject changes too often")


async def _define(
    request: RegistryRequest, source: SchemaSource
) -> tuple[SchemaSource, Definition]:
    """Return a source in its own form and its definition; what takes long in a thread."""
    resolved = request.broker.subjects.resolve(source.references, request.can_reference)
    work = partial(make_definition, source, resolved)
    if source.language == AVRO and not source.references:
        definition = Definition(source.language, source.text.encode())
        return await run_check(request.gateway, definition, work)
    return await asyncio.get_running_loop().run_in_executor(request.gateway.schema_executor, work)


async def _check(
    request: RegistryRequest,
    definition: Definition,
    known: list[SubjectVersion],
    strategy: CompatibilityStrategy,
) -> None:
    olds = [each.schema.definition for each in known]
    work = partial(check_change, definition, olds, strategy)
    try:
        await run_check(request.gateway, definition, work)
    except IncompatibleSchema as error:
        raise RegistryError(
            INCOMPATIBLE,
            "Schema being registered is incompatible with an earlier schema for subject "
            f'"{request.params["subject"]}", details: [{error}]',
        ) from error


async def test_all(request: RegistryRequest) -> object:
    """Return whether a schema could be registered."""
    return await _test(request, request.broker.subjects.versions(request.subject))


async def test_one(request: RegistryRequest) -> object:
    """Return whether a schema is compatible with one version."""
    try:
        version = request.subject_version()
    except RegistryError as error:
        if error.code != SUBJECT_NOT_FOUND:
            raise
        text = request.params["version"]  # a real registry looks for the version only
        raise RegistryError(VERSION_NOT_FOUND, f"Version {text} not found.") from error
    return await _test(request, [version])


async def _test(request: RegistryRequest, known: list[SubjectVersion]) -> object:
    _, definition = await _define(request, request.source())
    strategy = find_strategy(request, request.subject.name)
    messages: list[str] = []
    try:
        await _check(request, definition, known, strategy)
    except RegistryError as error:
        messages.append(str(error))
    result: dict[str, Any] = {"is_compatible": not messages}
    return {**result, "messages": messages} if request.flag("verbose") else result


# ---- deleting


async def delete_subject(request: RegistryRequest) -> object:
    """Delete all versions of a subject, or remove them, and return their numbers."""
    check_writable(request, request.subject.name)
    every = request.subject_versions(deleted=True)
    name, subjects = request.subject.name, request.broker.subjects
    left = [each for each in every if not each.is_deleted]
    if request.flag("permanent"):
        if left:
            raise RegistryError(
                SUBJECT_NOT_SOFT_DELETED,
                f"Subject '{name}' was not deleted first before being permanently deleted",
            )
        await request.commit_change(
            lambda: subjects.plan_remove(
                request.subject, subjects.versions(request.subject, deleted=True)
            )
        )
        return [each.number for each in every]
    if not left:
        raise RegistryError(
            SUBJECT_SOFT_DELETED,
            f"Subject '{name}' was soft deleted.Set permanent=true to delete permanently",
        )
    _check_referrers(request, left)
    await request.commit_change(lambda: subjects.plan_hide(subjects.versions(request.subject)))
    return [each.number for each in left]


async def delete_version(request: RegistryRequest) -> object:
    """Delete one version, or remove it, and return its number."""
    check_writable(request, request.subject.name)
    is_permanent, subjects = request.flag("permanent"), request.broker.subjects
    found = request.subject_version(deleted=True)
    if is_permanent and not found.is_deleted:
        raise RegistryError(
            VERSION_NOT_SOFT_DELETED,
            f"Subject '{request.subject.name}' Version {found.number} was not deleted first "
            "before being permanently deleted",
        )
    if is_permanent:
        await request.commit_change(lambda: subjects.plan_remove(request.subject, [found]))
        return found.number
    if request.params["version"] in {"latest", "-1"}:
        found = request.subject_version()
    if found.is_deleted:
        raise RegistryError(
            VERSION_SOFT_DELETED,
            f"Subject '{request.subject.name}' Version {found.number} was soft deleted. "
            "Set permanent=true to delete permanently",
        )
    _check_referrers(request, [found])
    await request.commit_change(lambda: subjects.plan_hide([found]))
    return found.number


def _check_referrers(request: RegistryRequest, versions: list[SubjectVersion]) -> None:
    name, numbers = request.subject.name, [each.number for each in versions]
    if request.broker.subjects.referrers(name, numbers):
        raise RegistryError(
            REFERENCE_EXISTS,
            f"One or more references exist to the schema {{subject={name},version={numbers}}}.",
        )
