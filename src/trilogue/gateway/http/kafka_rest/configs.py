"""Version 3: settings of topics, of brokers, and of all brokers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from trilogue.client.kafka.admin.model import (
    Change,
    Operation,
    Resource,
    ResourceType,
    Setting,
    Source,
)
from trilogue.client.kafka.model import granted
from trilogue.gateway.http.kafka_rest.links import (
    MEDIA_TYPE,
    ROOT,
    check_cluster,
    make_head,
    make_list,
)
from trilogue.gateway.http.kafka_rest.rest_errors import INVALID_REQUEST, RestError
from trilogue.gateway.http.kafka_rest.rest_request import (
    RestReply,
    RestRequest,
    RestRoute,
)

CHANGES_MAX: Final = 1_000  # of one request
OPERATIONS: Final = {"SET": Operation.SET, "DELETE": Operation.DELETE}


class SettingBody(msgspec.Struct):
    """A value for one setting."""

    value: str | None = None


class SettingChange(msgspec.Struct):
    """A change of one setting in a batch."""

    name: str
    value: str | None = None
    operation: str | None = None


class SettingsBody(msgspec.Struct):
    """Changes that are made together, or only checked."""

    data: list[SettingChange]
    validate_only: bool | None = None


class ConfigKind(msgspec.Struct, frozen=True):
    """What has settings: its parameter in the path, its path, and the fields of its settings."""

    resource_type: ResourceType
    parameter: str  # "": of all brokers
    path: str
    kind: str

    def resource(self, request: RestRequest) -> Resource:
        """Return the resource of the path."""
        return Resource(self.resource_type, request.params.get(self.parameter, ""))

    def self_path(self, request: RestRequest) -> str:
        """Return the path of the settings."""
        return self.path.format_map(request.params)

    def fields(self, request: RestRequest) -> dict[str, Any]:
        """Return the fields that name the resource."""
        if self.parameter == "topic":
            return {"topic_name": request.params["topic"]}
        if self.parameter:
            return {"broker_id": request.number("broker")}
        return {"config_type": "BROKER"}


CLUSTER: Final = f"{ROOT}/{{cluster}}"
TOPIC: Final = ConfigKind(
    ResourceType.TOPIC, "topic", f"{CLUSTER}/topics/{{topic}}/configs", "KafkaTopicConfig"
)
BROKER: Final = ConfigKind(
    ResourceType.BROKER, "broker", f"{CLUSTER}/brokers/{{broker}}/configs", "KafkaBrokerConfig"
)
ALL_BROKERS: Final = ConfigKind(
    ResourceType.BROKER, "", f"{CLUSTER}/broker-configs", "KafkaClusterConfig"
)


def routes() -> list[RestRoute]:
    """Return the routes of settings."""
    return [
        RestRoute("GET", f"{CLUSTER}/topics/-/configs", list_all_topics),
        RestRoute("GET", f"{CLUSTER}/brokers/-/configs", list_all_brokers),
        *(row for each in (TOPIC, BROKER, ALL_BROKERS) for row in _kind_routes(each)),
    ]


def _kind_routes(kind: ConfigKind) -> list[RestRoute]:
    async def list_settings(request: RestRequest) -> RestReply:
        """Return the settings of a resource."""
        found = await _find_settings(request, kind)
        listed = [_describe(request, kind, each) for each in found.values()]
        return make_list(request, kind.kind, listed, kind.self_path(request))

    async def get_setting(request: RestRequest) -> RestReply:
        """Return one setting."""
        return RestReply(_describe(request, kind, await _find_one(request, kind)), MEDIA_TYPE)

    async def put_setting(request: RestRequest) -> None:
        """Set a value; without one the default is restored."""
        body = request.json(SettingBody)
        await _find_one(request, kind)
        await _alter(request, kind, {request.params["name"]: body.value})

    async def reset_setting(request: RestRequest) -> None:
        """Restore the default of a setting."""
        await _find_one(request, kind)
        await _alter(request, kind, {request.params["name"]: None})

    async def alter_settings(request: RestRequest) -> None:
        """Change several settings, all or none."""
        await check_cluster(request)
        body = request.json(SettingsBody)
        changes: dict[str, str | Change | None] = {}
        for each in body.data:
            operation = OPERATIONS.get((each.operation or "SET").upper())
            if operation is None:
                raise RestError(INVALID_REQUEST, "an operation is SET or DELETE")
            if each.name in changes or len(changes) >= CHANGES_MAX:
                reason = f"{each.name[:100]} is named twice, or there are over {CHANGES_MAX}"
                raise RestError(INVALID_REQUEST, reason)
            changes[each.name] = Change(operation, each.value)
        await _alter(request, kind, changes, validate_only=bool(body.validate_only))

    return [
        RestRoute("GET", kind.path, list_settings),
        RestRoute("POST", f"{kind.path}:alter", alter_settings),
        RestRoute("GET", f"{kind.path}/{{name}}", get_setting),
        RestRoute("PUT", f"{kind.path}/{{name}}", put_setting),
        RestRoute("DELETE", f"{kind.path}/{{name}}", reset_setting),
    ]


async def list_all_topics(request: RestRequest) -> RestReply:
    """Return the settings of all topics that the client may describe."""
    await check_cluster(request)
    names = [each.name for each in await request.client.admin.list_topics()]
    return await _list_all(request, TOPIC, names)


async def list_all_brokers(request: RestRequest) -> RestReply:
    """Return the settings of all nodes."""
    found = await check_cluster(request)
    return await _list_all(request, BROKER, [str(each.id) for each in found.nodes])


async def _list_all(request: RestRequest, kind: ConfigKind, names: list[str]) -> RestReply:
    resources = [Resource(kind.resource_type, each) for each in sorted(names)]
    found = (
        granted(await request.client.admin.describe_configs(resources, synonyms=True))
        if names
        else {}
    )
    listed: list[dict[str, Any]] = []
    for resource, settings in found.items():
        request.params[kind.parameter] = resource.name
        listed += [_describe(request, kind, each) for each in settings.values()]
    request.params[kind.parameter] = "-"
    return make_list(request, kind.kind, listed, kind.self_path(request))


async def _find_settings(request: RestRequest, kind: ConfigKind) -> dict[str, Setting]:
    await check_cluster(request)
    resource = kind.resource(request)
    return granted(await request.client.admin.describe_configs([resource], synonyms=True))[resource]


async def _find_one(request: RestRequest, kind: ConfigKind) -> Setting:
    """Return the setting of the path; raises RestError 404."""
    found = (await _find_settings(request, kind)).get(request.params["name"])
    if found is None and not kind.parameter:  # not set, and may be
        found = Setting(request.params["name"], None)
    if found is None:
        raise RestError(404, f"Config {request.params['name'][:100]} cannot be found.")
    return found


async def _alter(
    request: RestRequest,
    kind: ConfigKind,
    changes: Mapping[str, str | Change | None],
    *,
    validate_only: bool = False,
) -> None:
    resource = kind.resource(request)
    altered = {resource: dict(changes)}
    granted(await request.client.admin.alter_configs(altered, validate_only=validate_only))


def _describe(request: RestRequest, kind: ConfigKind, setting: Setting) -> dict[str, Any]:
    return {
        **make_head(request, kind.kind, f"{kind.self_path(request)}/{setting.name}"),
        "cluster_id": request.params["cluster"],
        **kind.fields(request),
        "name": setting.name,
        "value": setting.value,
        "is_default": setting.is_default,
        "is_read_only": setting.read_only,
        "is_sensitive": setting.sensitive,
        "source": _source_name(setting.source),
        "synonyms": [
            {"name": each.name, "value": each.value, "source": _source_name(each.source)}
            for each in setting.synonyms
        ],
    }


def _source_name(source: Source) -> str:
    return "DYNAMIC_TOPIC_CONFIG" if source is Source.TOPIC else f"{source.name}_CONFIG"
