"""Checks the settings of a node of a cluster before anything is opened."""

from __future__ import annotations

import importlib.util
from urllib.parse import urlsplit

from trilogue.node.cluster.place import ClusterPlace, SharedPlace
from trilogue.node.errors import WRONG_SETTING, StartError
from trilogue.node.settings.cluster_table import ACK_SHARED
from trilogue.node.settings.table import Settings
from trilogue.node.storage import NodePlace

SCHEMES = frozenset({"postgresql", "postgres"})


def cluster_place(settings: Settings) -> NodePlace:
    """Return which node of which cluster a process is; StartError for settings that cannot be."""
    url, where = settings.text("cluster.url"), settings.origin("cluster.url")
    if urlsplit(url).scheme not in SCHEMES:
        raise StartError(f"cluster.url ({where}) is not postgresql://HOST/DATABASE", WRONG_SETTING)
    if importlib.util.find_spec("asyncpg") is None:
        raise StartError(
            f"cluster.url ({where}) needs a package that is not here: "
            "pip install 'trilogue[postgres]'",
            WRONG_SETTING,
        )
    if settings.number("nodes") > 1:
        raise StartError(
            "with cluster.url each node is started by itself, with its own --data and --node: "
            "set nodes=1",
            WRONG_SETTING,
        )
    shared = None
    if settings.text("ack") == ACK_SHARED:
        is_standby = settings.switch("cluster.standby")
        after = settings.number("cluster.spread-after")
        lease_s = settings.seconds("cluster.lease")
        after_s = None if after < 0 else after / 1000
        shared = SharedPlace(lease_s, is_standby, spread_after_s=after_s)
    size = settings.number("cluster.size")
    slots = max(settings.number("cluster.slots"), size)
    owners = tuple(slot % size + 1 for slot in range(slots))
    return NodePlace(settings.number("cluster.node"), cluster=ClusterPlace(url, owners, shared))
