"""What the settings require of HTTP clients: a login, and a name of this node as the host."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from trilogue.gateway.http.login import LoginRules
from trilogue.node.addresses import parse_address
from trilogue.node.settings.table import BY_KEY, Settings


def login_rules(settings: Settings) -> LoginRules:
    """Return the rules of the HTTP listeners."""
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
