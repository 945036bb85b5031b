"""Configs of topics, brokers and other resources: described and altered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from trilogue.client.errors import Unsupported
from trilogue.client.kafka.admin.model import (
    Change,
    Operation,
    Resource,
    ResourceType,
    Setting,
    SettingType,
    Source,
    Synonym,
)
from trilogue.client.kafka.admin.requests import AdminRequests
from trilogue.client.kafka.connection import KafkaConnection
from trilogue.client.kafka.errors import KafkaError, error_for_code
from trilogue.wire.kafka.configs.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)

INCREMENTAL: Final = 44
OF_ONE_NODE: Final = frozenset({ResourceType.BROKER, ResourceType.BROKER_LOGGER})
Changes = Mapping[str, "str | Change | None"]


class ConfigAdmin(AdminRequests):
    """Requests about settings."""

    async def describe_configs(
        self,
        resources: Iterable[Resource],
        *,
        names: Iterable[str] | None = None,
        synonyms: bool = False,
        documentation: bool = False,
    ) -> dict[Resource, dict[str, Setting] | KafkaError]:
        """The settings of resources: all, or those of these names. A broker describes its own."""
        keys = None if names is None else list(names)

        async def attempt(left: list[Resource]) -> dict[Resource, dict[str, Setting] | KafkaError]:
            found: dict[Resource, dict[str, Setting] | KafkaError] = {}
            for connection, some in (await self._connections_for(left)).items():
                answer: DescribeConfigsResponse = await self._send_request(
                    connection,
                    DescribeConfigsRequest(
                        resources=[
                            DescribeConfigsResource(
                                resource_type=one.type,
                                resource_name=one.name,
                                configuration_keys=keys,
                            )
                            for one in some
                        ],
                        include_synonyms=synonyms,
                        include_documentation=documentation,
                    ),
                )
                for row in answer.results:
                    resource = Resource(ResourceType(row.resource_type), row.resource_name)
                    about = f"settings of {resource.type.name.lower()} {resource.name}"
                    found[resource] = error_for_code(row.error_code, about, row.error_message) or {
                        one.name: _build_setting(one) for one in row.configs
                    }
            return found

        return await self._run_for_each(resources, attempt, repeatable=True)

    async def alter_configs(
        self, changes: Mapping[Resource, Changes], *, validate_only: bool = False
    ) -> dict[Resource, KafkaError | None]:
        """Change some settings of resources and leave the others (KIP-339).

        A text sets a value, None restores the default, a `Change` names any other operation.
        """

        async def attempt(left: list[Resource]) -> dict[Resource, KafkaError | None]:
            found: dict[Resource, KafkaError | None] = {}
            for connection, some in (await self._connections_for(left)).items():
                rows = [
                    IncrementalAlterConfigsResource(
                        resource_type=one.type,
                        resource_name=one.name,
                        configs=[_changed(name, what) for name, what in changes[one].items()],
                    )
                    for one in some
                ]
                request = IncrementalAlterConfigsRequest(
                    resources=rows, validate_only=validate_only
                )
                found |= _build_outcomes(await self._send_request(connection, request))
            return found

        return await self._run_for_each(changes, attempt)

    async def replace_configs(
        self,
        settings: Mapping[Resource, Mapping[str, str | None]],
        *,
        validate_only: bool = False,
    ) -> dict[Resource, KafkaError | None]:
        """Let resources have these settings and no others; the only way before Kafka 2.3."""

        async def attempt(left: list[Resource]) -> dict[Resource, KafkaError | None]:
            found: dict[Resource, KafkaError | None] = {}
            for connection, some in (await self._connections_for(left)).items():
                rows = [
                    AlterConfigsResource(
                        resource_type=one.type,
                        resource_name=one.name,
                        configs=[
                            AlterableConfig(name=name, value=value)
                            for name, value in settings[one].items()
                        ],
                    )
                    for one in some
                ]
                request = AlterConfigsRequest(resources=rows, validate_only=validate_only)
                found |= _build_outcomes(await self._send_request(connection, request))
            return found

        return await self._run_for_each(settings, attempt)

    async def can_alter_some(self) -> bool:
        """Whether the server can change one setting and leave the others."""
        connection = await self._cluster.any_connection()
        try:
            connection.version(INCREMENTAL)
        except Unsupported:
            return False
        return True

    async def _connections_for(
        self, resources: list[Resource]
    ) -> dict[KafkaConnection, list[Resource]]:
        """The connection for each resource: to the broker itself, or to any node."""
        grouped: dict[KafkaConnection, list[Resource]] = {}
        for one in resources:
            if one.type in OF_ONE_NODE and one.name.isdecimal():
                number = int(one.name)
                if number not in self._cluster.nodes:
                    await self._cluster.refresh_nodes()
                known = number in self._cluster.nodes
                connection = await (
                    self._cluster.node(number) if known else self._cluster.any_connection()
                )
            else:
                connection = await self._cluster.any_connection()
            grouped.setdefault(connection, []).append(one)
        return grouped


def _changed(name: str, what: str | Change | None) -> IncrementalAlterableConfig:
    if what is None:
        what = Change(Operation.DELETE)
    elif isinstance(what, str):
        what = Change(Operation.SET, what)
    return IncrementalAlterableConfig(name=name, config_operation=what.operation, value=what.value)


def _build_outcomes(
    answer: AlterConfigsResponse | IncrementalAlterConfigsResponse,
) -> dict[Resource, KafkaError | None]:
    found: dict[Resource, KafkaError | None] = {}
    for row in answer.responses:
        resource = Resource(ResourceType(row.resource_type), row.resource_name)
        about = f"settings of {resource.type.name.lower()} {resource.name}"
        found[resource] = error_for_code(row.error_code, about, row.error_message)
    return found


def _build_setting(row: DescribeConfigsResourceResult) -> Setting:
    source = row.config_source if row.config_source >= 0 else Source.DEFAULT * row.is_default
    return Setting(
        row.name,
        row.value,
        Source(source) if source in Source.__members__.values() else Source.UNKNOWN,
        row.read_only,
        row.is_sensitive,
        SettingType(row.config_type)
        if row.config_type in SettingType.__members__.values()
        else SettingType.UNKNOWN,
        tuple(
            Synonym(
                one.name,
                one.value,
                Source(one.source) if one.source in Source.__members__.values() else Source.UNKNOWN,
            )
            for one in row.synonyms
        ),
        row.documentation,
    )
