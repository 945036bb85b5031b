"""Checks settings of authentication together; SettingsError if they cannot work."""

from __future__ import annotations

from trilogue.node.settings.table import INTERNAL_LISTENER, Settings, SettingsError

WEB_TOKEN_MIN = 8
ROLES = {
    "off": frozenset[str](),
    "producers": frozenset({"producers"}),
    "consumers": frozenset({"consumers"}),
    "both": frozenset({"producers", "consumers"}),
}


def roles(settings: Settings, key: str) -> frozenset[str]:
    """Return the principals that one of these settings names."""
    return ROLES[settings.text(key)]


def check_access(settings: Settings) -> None:
    """Raise SettingsError for combinations without the effect that they promise."""
    everyone = settings.switch("access.authenticate")
    authenticate = ROLES["both"] if everyone else roles(settings, "tubemq.authenticate")
    if not roles(settings, "tubemq.authorize") <= authenticate:
        raise SettingsError(
            f"tubemq.authorize ({settings.origin('tubemq.authorize')}): nothing can be granted to "
            "clients that are not authenticated (tubemq.authenticate)"
        )
    if settings.text(f"listen.{INTERNAL_LISTENER}") != "off":
        _check_internal_listener(settings)
    both = ("access.users-file", "tubemq.users")
    if all(settings.text(key) for key in both):
        origins = " and ".join(f"{key} ({settings.origin(key)})" for key in both)
        raise SettingsError(f"{origins} name the same thing: one of them is needed")
    token = settings.text("tubemq.web-token")
    if token and (len(token) < WEB_TOKEN_MIN or not token.isprintable()):
        raise SettingsError(
            f"tubemq.web-token ({settings.origin('tubemq.web-token')}): at least {WEB_TOKEN_MIN} "
            "characters that can be seen are needed"
        )


def _check_internal_listener(settings: Settings) -> None:
    origin = settings.origin(f"listen.{INTERNAL_LISTENER}")
    if not settings.text("cluster.principals"):
        raise SettingsError(
            f"listen.{INTERNAL_LISTENER} ({origin}): no broker has access without "
            "cluster.principals"
        )
    is_by_certificate = settings.text("cluster.security-protocol") == "ssl"
    if is_by_certificate and not settings.text("tls.client-ca"):
        raise SettingsError(
            f"listen.{INTERNAL_LISTENER} ({origin}): brokers log in by certificates "
            "(cluster.security-protocol), whose authorities tls.client-ca has to name"
        )
