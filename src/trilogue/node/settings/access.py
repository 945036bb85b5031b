"""Checks settings of authentication together; SettingsError if they cannot work."""

from __future__ import annotations

from trilogue.node.settings.table import Settings, SettingsError

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
    authenticate = roles(settings, "tubemq.authenticate")
    if authenticate and not settings.text("tubemq.users"):
        raise SettingsError(
            f"tubemq.authenticate ({settings.origin('tubemq.authenticate')}) needs tubemq.users"
        )
    if not roles(settings, "tubemq.authorize") <= authenticate:
        raise SettingsError(
            f"tubemq.authorize ({settings.origin('tubemq.authorize')}): nothing can be granted to "
            "who is not authenticated (tubemq.authenticate)"
        )
    token = settings.text("tubemq.web-token")
    if token and (len(token) < WEB_TOKEN_MIN or not token.isprintable()):
        raise SettingsError(
            f"tubemq.web-token ({settings.origin('tubemq.web-token')}): at least {WEB_TOKEN_MIN} "
            "characters that can be seen are needed"
        )
