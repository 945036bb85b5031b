"""The compatibility level and the mode of all subjects and of single ones."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from trilogue.broker.access.authorizer import Operation
from trilogue.broker.schemas.subjects import ALL_SUBJECTS, SubjectConfig
from trilogue.broker.topics.policies import CompatibilityStrategy
from trilogue.gateway.http.registry.registry_request import (
    INVALID_COMPATIBILITY,
    INVALID_MODE,
    OPERATION_NOT_PERMITTED,
    SUBJECT_CONFIG_NOT_FOUND,
    SUBJECT_MODE_NOT_FOUND,
    RegistryError,
    RegistryRequest,
    RegistryRoute,
    Scope,
)

DEFAULT_LEVEL, DEFAULT_MODE = "BACKWARD", "READWRITE"
STRATEGIES = {
    "NONE": CompatibilityStrategy.ALWAYS_COMPATIBLE,
    **{
        each.value: each
        for each in CompatibilityStrategy
        if each.value.startswith(("BACKWARD", "FORWARD", "FULL"))
    },
}
MODES = (DEFAULT_MODE, "READONLY")


class LevelBody(msgspec.Struct):
    """A compatibility level as it is put; other fields are not used."""

    compatibility: str


class ModeBody(msgspec.Struct):
    """A mode as it is put."""

    mode: str


def routes() -> list[RegistryRoute]:
    """Return the routes of /config and /mode."""
    read, write = Operation.DESCRIBE, Operation.ALTER
    made = []
    for path, getter, setter, remover in (
        ("/config", get_level, put_level, delete_level),
        ("/mode", get_mode, put_mode, delete_mode),
    ):
        for suffix, scope in (("", Scope.CLUSTER), ("/{subject}", Scope.SUBJECT)):
            made += [
                RegistryRoute("GET", path + suffix, getter, read, scope),
                RegistryRoute("PUT", path + suffix, setter, write, scope),
                RegistryRoute("DELETE", path + suffix, remover, write, scope),
            ]
    return made


def find_strategy(request: RegistryRequest, subject: str) -> CompatibilityStrategy:
    """Return the strategy that new schemas of a subject follow."""
    configs = request.broker.subjects
    level = configs.config(subject).compatibility or configs.config(ALL_SUBJECTS).compatibility
    return STRATEGIES[level or DEFAULT_LEVEL]


def check_writable(request: RegistryRequest, subject: str) -> None:
    """Refuse a change of a subject that is in mode READONLY: RegistryError."""
    configs = request.broker.subjects
    mode = configs.config(subject).mode or configs.config(ALL_SUBJECTS).mode
    if mode == "READONLY":
        raise RegistryError(OPERATION_NOT_PERMITTED, f"Subject {subject} is in read-only mode")


def get_level(request: RegistryRequest) -> object:
    """Return the compatibility level."""
    configs, name = request.broker.subjects, _name(request)
    level = configs.config(name).compatibility
    if level is None and name and not request.flag("defaultToGlobal"):
        raise RegistryError(
            SUBJECT_CONFIG_NOT_FOUND,
            f"Subject '{name}' does not have subject-level compatibility configured",
        )
    level = level or configs.config(ALL_SUBJECTS).compatibility or DEFAULT_LEVEL
    return {"compatibilityLevel": level}


async def put_level(request: RegistryRequest) -> object:
    """Set the compatibility level."""
    level = request.json(LevelBody).compatibility.upper()
    if level not in STRATEGIES:
        raise RegistryError(
            INVALID_COMPATIBILITY,
            f"Invalid compatibility level. Valid values are {', '.join(STRATEGIES)}",
        )
    await _change(request, compatibility=level)
    return {"compatibility": level}


async def delete_level(request: RegistryRequest) -> object:
    """Let the default hold again, and return the level before."""
    before = get_level(request)
    await _change(request, compatibility=None)
    return before


def get_mode(request: RegistryRequest) -> object:
    """Return the mode."""
    configs, name = request.broker.subjects, _name(request)
    mode = configs.config(name).mode
    if mode is None and name and not request.flag("defaultToGlobal"):
        raise RegistryError(
            SUBJECT_MODE_NOT_FOUND, f"Subject '{name}' does not have subject-level mode configured"
        )
    return {"mode": mode or configs.config(ALL_SUBJECTS).mode or DEFAULT_MODE}


async def put_mode(request: RegistryRequest) -> object:
    """Set the mode; IMPORT and READONLY_OVERRIDE are refused."""
    mode = request.json(ModeBody).mode.upper()
    if mode not in MODES:
        raise RegistryError(INVALID_MODE, f"Invalid mode. Valid values are {', '.join(MODES)}")
    await _change(request, mode=mode)
    return {"mode": mode}


async def delete_mode(request: RegistryRequest) -> object:
    """Let the default hold again, and return the mode before."""
    before = get_mode(request)
    await _change(request, mode=None)
    return before


def _name(request: RegistryRequest) -> str:
    """Return the subject of the path, ALL_SUBJECTS without one."""
    return request.subject.name if "subject" in request.params else ALL_SUBJECTS


async def _change(request: RegistryRequest, **fields: str | None) -> None:
    configs, name = request.broker.subjects, _name(request)

    def decide() -> SubjectConfig:
        return replace(configs.config(name), **fields)

    if decide() != configs.config(name):
        await request.commit_change(lambda: configs.plan_config(name, decide()))
