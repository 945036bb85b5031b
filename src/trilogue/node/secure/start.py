"""What each start does for a secured directory; for another one it costs a look at a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trilogue.node.errors import WRONG_SETTING, StartError
from trilogue.node.secure.files import SECURED_MARK, SecureFiles
from trilogue.node.settings.table import Settings


def prepare_secured(settings: Settings, stored: Mapping[str, str], *, renews: bool) -> None:
    """Check the settings against the mark in meta, and renew certificates; StartError.

    One of the nodes of a directory `renews` them.
    """
    check_secured(settings, stored)
    if renews and _is_secured(settings):
        from trilogue.node.secure.setup import renew

        renew(settings)


def finish_secured(settings: Settings, bound: Mapping[str, str]) -> None:
    """Write the configurations of clients for the listeners that are open; StartError."""
    if _is_secured(settings):
        from trilogue.node.secure.setup import refresh_clients

        try:
            refresh_clients(settings, bound)
        except OSError as error:
            raise StartError(f"{error.strerror}: {error.filename}") from error


def check_secured(settings: Settings, stored: Mapping[str, str]) -> None:
    """Refuse to serve a secured directory without access control; StartError."""
    if SECURED_MARK not in stored or settings.switch("insecure"):
        return
    for key in ("access.authenticate", "access.authorize"):
        if not settings.switch(key):
            raise StartError(
                f"{settings.text('data')} was secured, and {key} is off "
                f"({settings.origin(key)}): leave secure.toml in place, or set --insecure",
                WRONG_SETTING,
            )


def _is_secured(settings: Settings) -> bool:
    return SecureFiles(Path(settings.text("data"))).is_secured
