"""Reads the settings `objects.*` of object storage; SettingsError for values that cannot work."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from trilogue.node.settings.table import Settings, SettingsError

if TYPE_CHECKING:
    from trilogue.log.objects.obstore_store import Reach

_OF_S3 = ("objects.endpoint", "objects.region", "objects.credentials-file")


def check_objects(settings: Settings) -> None:
    """Raise SettingsError for values that cannot work; the store is not contacted."""
    if not settings.text("objects.url"):
        for key in _OF_S3:
            if settings.text(key):
                raise SettingsError(f"{key} ({settings.origin(key)}) needs objects.url")
        return
    from trilogue.log.objects.obstore_store import StoreOptionsError

    try:
        reach_of(settings, b"").options.check()
    except StoreOptionsError as error:
        raise SettingsError(f"objects.url ({settings.origin('objects.url')}): {error}") from None


def reach_of(settings: Settings, cluster_id: bytes, node_id: int | None = None) -> Reach:
    """Return how this cluster's objects are reached; requires `objects.url`."""
    from trilogue.log.objects.obstore_store import Reach, StoreOptions

    options = StoreOptions(
        url=settings.text("objects.url"),
        endpoint=settings.text("objects.endpoint"),
        region=settings.text("objects.region"),
        credentials_file=settings.text("objects.credentials-file"),
    )
    return Reach(options, cluster_id, node_id)


def is_in_the_clear(settings: Settings) -> bool:
    """Return whether segments are sent to another machine without TLS."""
    endpoint = urlsplit(settings.text("objects.endpoint"))
    return endpoint.scheme == "http" and endpoint.hostname not in {"127.0.0.1", "::1", "localhost"}
