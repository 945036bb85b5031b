"""What each start does for a secured directory; for another one it costs a look at a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trilogue.node.errors import WRONG_SETTING, StartError
from trilogue.node.secure.files import SECURED_MARK, SecureFiles, node_name
from trilogue.node.settings.table import Settings

if TYPE_CHECKING:
    from trilogue.node.storage import NodePlace


def prepare_secured(settings: Settings, stored: Mapping[str, str], place: NodePlace) -> None:
    """Check the settings against the mark in meta, and renew certificates; StartError."""
    check_secured(settings, stored)
    if _keeps_files(settings, place):
        from trilogue.node.secure.setup import renew

        renew(settings, "" if place.cluster is None else node_name(place.node_id))


def finish_secured(settings: Settings, bound: Mapping[str, str], place: NodePlace) -> None:
    """Write the configurations of clients for the listeners that are open; StartError."""
    if _keeps_files(settings, place):
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
                f"{_subject(settings)} was secured, and {key} is off "
                f"({settings.origin(key)}): {_advice(settings)}, or set --insecure",
                WRONG_SETTING,
            )


def _keeps_files(settings: Settings, place: NodePlace) -> bool:
    """Whether the directory is secured, and this node is the one that keeps its files."""
    keeps = place.is_first or place.cluster is not None
    return keeps and SecureFiles(Path(settings.text("data"))).is_secured


def _subject(settings: Settings) -> str:
    return "the cluster" if settings.text("cluster.url") else settings.text("data")


def _advice(settings: Settings) -> str:
    if settings.text("cluster.url"):
        return "start each node with --secure"
    return "leave secure.toml in place"
