"""The applications of a node's HTTP listeners; each is built when a request first needs it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from trilogue.node.access import AccessControl, make_administration
from trilogue.node.addresses import parse_address
from trilogue.node.metadata_writer import MetadataWriter
from trilogue.node.settings.table import BY_KEY, Settings
from trilogue.node.storage import Storage

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from trilogue.gateway.http.app import Health
    from trilogue.gateway.http.login import LoginRules
    from trilogue.gateway.pulsar.gateway import PulsarGateway
    from trilogue.gateway.tubemq.gateway import TubeGateway

Apps = Mapping[str, "Callable[[], ASGIApp]"]  # by the path under which they are


def build_http_app(
    settings: Settings,
    access: AccessControl,
    *,
    health: Callable[[], Health],
    load_metrics: Callable[[], Callable[[], bytes]],
    pulsar: PulsarGateway | None,
    apps: Apps,
) -> ASGIApp:
    """Return the application of the HTTP listeners; `apps` are those of single paths."""
    from trilogue.gateway.http.app import build_app
    from trilogue.gateway.http.login import HttpLogin

    administration = None if pulsar is None else _make_pulsar_app(pulsar)
    app = build_app(health, load_metrics, administration, apps)
    return HttpLogin(app, access.authenticator, access.authorizer, login_rules(settings))


def _make_pulsar_app(gateway: PulsarGateway) -> Callable[[], ASGIApp]:
    """Return what builds the app of Pulsar's admin API and HTTP lookup."""

    def make() -> ASGIApp:
        from trilogue.gateway.http.pulsar.routes import build_pulsar_app

        return build_pulsar_app(gateway)

    return make


def make_access_app(
    settings: Settings,
    storage: Storage,
    metadata: MetadataWriter,
    access: AccessControl,
    now_ms: Callable[[], int],
) -> Callable[[], ASGIApp]:
    """Return what builds the app that administers users and ACLs."""

    def make() -> ASGIApp:
        from trilogue.gateway.http.access import build_access_app

        administration = make_administration(
            settings,
            storage.broker.users,
            storage.broker.acls,
            metadata.write,
            data=storage.directory.path,
            now_ms=now_ms,
        )
        return build_access_app(administration, access.authenticator)

    return make


def make_tubemq_app(gateway: TubeGateway, token: str) -> Callable[[], ASGIApp]:
    """Return what builds the app of TubeMQ's admin API."""

    def make() -> ASGIApp:
        from trilogue.gateway.http.tubemq.routes import build_tubemq_app

        return build_tubemq_app(gateway, token)

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
