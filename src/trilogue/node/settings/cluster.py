"""Checks the settings of a cluster against each other."""

from __future__ import annotations

from trilogue.node.settings.cluster_table import ACK_SHARED
from trilogue.node.settings.table import Settings, SettingsError


def check_cluster(settings: Settings) -> None:
    """Raise SettingsError for values that cannot work together; no server is contacted."""
    is_shared = settings.text("ack") == ACK_SHARED
    if is_shared:
        for key in ("cluster.url", "objects.url"):
            if not settings.text(key):
                raise SettingsError(f"ack=shared ({settings.origin('ack')}) needs {key}")
        if settings.switch("salvage"):
            raise SettingsError("salvage repairs journal files, which ack=shared does not need")
    elif settings.switch("cluster.standby"):
        where = settings.origin("cluster.standby")
        raise SettingsError(f"cluster.standby ({where}) needs ack=shared")
