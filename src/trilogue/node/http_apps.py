"""The applications of a node's HTTP listeners; each is built when a request first needs it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trilogue.node.access import AccessControl, make_administration
from trilogue.node.addresses import parse_address
from trilogue.node.metadata_writer import MetadataWriter
from trilogue.node.settings.table import BY_KEY, Settings
from trilogue.node.storage import Storage
from trilogue.node.tubemq_access import web_token

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from trilogue.broker.broker import Broker
    from trilogue.gateway.access_administration import AccessAdministration
    from trilogue.gateway.dependencies import ProtocolGateway
    from trilogue.gateway.http.app import Health
    from trilogue.gateway.http.login import LoginRules
    from trilogue.gateway.http.node_clients import NodeClients
    from trilogue.gateway.pulsar.gateway import PulsarGateway
    from trilogue.gateway.tubemq.gateway import TubeGateway
    from trilogue.node.metrics.measured_node import MeasuredNode

TUBEMQ_PATHS = ("/webapi.htm", "/broker.htm")  # of TubeMQ's master and its broker
ACCESS_PATHS = "/trilogue/{rest:path}"
REGISTRY_PATHS = "/schema-registry{rest:path}"
WEBSOCKET_PATHS = "/ws/{rest:path}"
KAFKA_REST_PATHS = "/kafka-rest/{rest:path}"
PUBLISHED_PATHS = "/topics/{rest:path}"
CONSOLE_PATHS = ("/", "/console", "/console/{rest:path}")

Apps = Mapping[str, "Callable[[], ASGIApp]"]  # by the path under which they are


def build_http_app(
    node: MeasuredNode,
    settings: Settings,
    access: AccessControl,
    *,
    health: Callable[[], Health],
    apps: Apps,
) -> ASGIApp:
    """Return the application of the HTTP listeners; `apps` are those of single paths."""
    from trilogue.gateway.http.app import build_app
    from trilogue.gateway.http.login import HttpLogin

    pulsar = node.gateways.pulsar
    administration = None if pulsar is None else _make_pulsar_app(pulsar, settings)
    load_named = _named_metrics_loader(settings, node.storage.broker, pulsar)
    app = build_app(health, _metrics_loader(node), administration, apps, load_named)
    return HttpLogin(app, access.authenticator, access.authorizer, login_rules(settings))


def _make_pulsar_app(gateway: PulsarGateway, settings: Settings) -> Callable[[], ASGIApp]:
    """Return what builds the app of Pulsar's admin API and HTTP lookup."""

    def make() -> ASGIApp:
        from trilogue.gateway.http.pulsar.routes import build_pulsar_app

        return build_pulsar_app(gateway, _find_authority(settings))

    return make


async def collect_apps(
    node: MeasuredNode,
    settings: Settings,
    metadata: MetadataWriter,
    access: AccessControl,
    gateway: ProtocolGateway,
) -> Apps:
    """Return what builds the applications of single paths."""
    administration = _administration_maker(settings, node.storage, metadata, gateway.now_ms)
    apps = {ACCESS_PATHS: _make_access_app(administration, access)}
    apps |= dict.fromkeys(CONSOLE_PATHS, _make_console_app(node, gateway, administration))
    apps[REGISTRY_PATHS] = _make_registry_app(gateway)
    apps[KAFKA_REST_PATHS] = _make_kafka_rest_app(node, gateway)
    apps[PUBLISHED_PATHS] = _make_published_app(node, gateway)
    apps[WEBSOCKET_PATHS] = _make_websocket_app(node, gateway)
    if node.gateways.tubemq is not None:
        token = await web_token(settings, node.storage, metadata)
        apps |= dict.fromkeys(TUBEMQ_PATHS, _make_tubemq_app(node.gateways.tubemq, token))
    return apps


def _metrics_loader(node: MeasuredNode) -> Callable[[], Callable[[], Awaitable[bytes]]]:
    """Return what makes the function of the page of /metrics."""

    def load() -> Callable[[], Awaitable[bytes]]:
        from trilogue.gateway.http.metrics import Exposition
        from trilogue.node.metrics.node_metrics import NodeMetrics

        return Exposition(NodeMetrics(node).gather).page

    return load


def _named_metrics_loader(
    settings: Settings, broker: Broker, pulsar: PulsarGateway | None
) -> Callable[[], Callable[[], Awaitable[bytes]]]:
    """Return what makes the part of /metrics that names topics, groups and subscriptions."""

    def load() -> Callable[[], Awaitable[bytes]]:
        from trilogue.gateway.http.metrics import encode_metrics
        from trilogue.node.metrics.topic_metrics import TopicMetrics

        series_max = settings.number("http.metrics-series")
        topics = TopicMetrics(broker, pulsar, settings.text("pulsar.cluster"), series_max)

        async def make() -> bytes:
            return await asyncio.to_thread(encode_metrics, await topics.gather())

        return make

    return load


def _administration_maker(
    settings: Settings, storage: Storage, metadata: MetadataWriter, now_ms: Callable[[], int]
) -> Callable[[], AccessAdministration]:
    """Return what makes the administration of users and ACLs."""

    def make() -> AccessAdministration:
        return make_administration(
            settings,
            storage.broker.users,
            storage.broker.acls,
            metadata.write,
            data=storage.directory.path,
            now_ms=now_ms,
        )

    return make


def _make_access_app(
    make_administration: Callable[[], AccessAdministration], access: AccessControl
) -> Callable[[], ASGIApp]:
    """Return what builds the app that administers users and ACLs."""

    def make() -> ASGIApp:
        from trilogue.gateway.http.access import build_access_app

        return build_access_app(make_administration(), access.authenticator)

    return make


def _make_console_app(
    node: MeasuredNode,
    gateway: ProtocolGateway,
    make_administration: Callable[[], AccessAdministration],
) -> Callable[[], ASGIApp]:
    """Return what builds the app of the console."""

    def make() -> ASGIApp:
        from trilogue.gateway.http.console.app import build_console_app
        from trilogue.gateway.http.console.request import ConsoleServices
        from trilogue.node.metrics.node_metrics import NodeMetrics

        def list_connections() -> dict[str, list[tuple[str, str, str]]]:
            return {name: each.list_clients() for name, each in node.gateways.listeners.items()}

        return build_console_app(
            ConsoleServices(
                gateway=gateway,
                pulsar=node.gateways.pulsar,
                gather=NodeMetrics(node).gather,
                list_connections=list_connections,
                make_administration=make_administration,
                make_node_clients=lambda: _make_node_clients(node, gateway),
                has_access_control=gateway.requires_login,
            )
        )

    return make


def _make_tubemq_app(gateway: TubeGateway, token: str) -> Callable[[], ASGIApp]:
    """Return what builds the app of TubeMQ's admin API."""

    def make() -> ASGIApp:
        from trilogue.gateway.http.tubemq.routes import build_tubemq_app

        return build_tubemq_app(gateway, token)

    return make


def _make_registry_app(gateway: ProtocolGateway) -> Callable[[], ASGIApp]:
    """Return what builds the app of the schema registry."""

    def make() -> ASGIApp:
        from trilogue.gateway.http.registry.routes import build_registry_app

        return build_registry_app(gateway)

    return make


def _make_node_clients(node: MeasuredNode, gateway: ProtocolGateway) -> NodeClients:
    """Return what makes clients of the node's own protocols."""
    from trilogue.gateway.http.node_clients import NodeClients

    def list_mechanisms() -> Sequence[str]:
        return () if node.gateways.kafka is None else node.gateways.kafka.settings.sasl_mechanisms

    return NodeClients(
        node.gateways.listeners,
        node.gateways.advertised,
        requires_login=gateway.requires_login,
        anonymous=gateway.anonymous,
        sasl_mechanisms=list_mechanisms,
        authority=_find_authority(node.settings),
    )


def _find_authority(settings: Settings) -> str:
    """Return the file of the authority that `--secure` made beside its certificate, or ""."""
    if not (certificate := settings.text("tls.certificate")):
        return ""
    authority = Path(certificate).with_name("ca.pem")
    return str(authority) if authority.exists() else ""


def _make_websocket_app(node: MeasuredNode, gateway: ProtocolGateway) -> Callable[[], ASGIApp]:
    """Return what builds the app of Pulsar's WebSockets."""

    def make() -> ASGIApp:
        from trilogue.gateway.http.websocket.routes import build_websocket_app

        return build_websocket_app(_make_node_clients(node, gateway))

    return make


def _make_published_app(node: MeasuredNode, gateway: ProtocolGateway) -> Callable[[], ASGIApp]:
    """Return what builds the app of messages that are produced over HTTP by Pulsar's API."""

    def make() -> ASGIApp:
        from trilogue.gateway.http.pulsar.published import build_published_app

        return build_published_app(_make_node_clients(node, gateway))

    return make


def _make_kafka_rest_app(node: MeasuredNode, gateway: ProtocolGateway) -> Callable[[], ASGIApp]:
    """Return what builds the app of Kafka's REST proxy."""

    def make() -> ASGIApp:
        from trilogue.gateway.http.kafka_rest.routes import build_kafka_rest_app

        return build_kafka_rest_app(_make_node_clients(node, gateway), gateway)

    return make


def login_rules(settings: Settings) -> LoginRules:
    """Return the rules of the HTTP listeners."""
    from trilogue.gateway.http.login import LoginRules

    return LoginRules(
        settings.switch("access.authenticate"),
        settings.text("access.anonymous"),
        settings.switch("http.public-metrics"),
        frozenset(_host_names(settings)),
    )


def _host_names(settings: Settings) -> Iterator[str]:
    """Iterate over the names of this node: of its machine, its listeners, and configured ones."""
    yield socket.gethostname()
    for key in BY_KEY:
        text = settings.text(key) if key.startswith(("listen.", "advertise.")) else ""
        if text not in {"", "off"}:
            yield parse_address(text).host
    yield from (name.strip() for name in settings.text("http.allowed-hosts").split(","))
