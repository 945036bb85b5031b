"""Topic names: full names, namespaces, partition suffixes."""

from __future__ import annotations

import re
from urllib.parse import quote

from trilogue.client.errors import ClientError
from trilogue.client.message_bytes import check_topic

DOMAINS = ("persistent", "non-persistent")
SHORT_PARTS, FULL_PARTS, OLD_PARTS = 1, 3, 4
_PARTITION = re.compile(r"-partition-(\d+)$")


def full_name(topic: str) -> str:
    """`t`, `tenant/namespace/t` and full names as `persistent://tenant/namespace/t`.

    Old names with a cluster (`tenant/cluster/namespace/t`) stay what they are.
    """
    check_topic(topic)
    domain, found, rest = topic.partition("://")
    if not found:
        domain, rest = "persistent", topic
        parts = rest.split("/")
        if len(parts) == SHORT_PARTS:
            rest = f"public/default/{rest}"
        elif len(parts) != FULL_PARTS:
            raise ClientError(f"a short topic name has one or three parts: {topic!r}")
    if domain not in DOMAINS:
        raise ClientError(f"a topic is persistent:// or non-persistent://, not {topic!r}")
    parts = rest.split("/", OLD_PARTS - 1)
    if len(parts) < FULL_PARTS or not all(parts):
        raise ClientError(f"a topic has a tenant, a namespace and a name: {topic!r}")
    return f"{domain}://{rest}"


def namespace_of(full: str) -> str:
    """The namespace of a full name: `tenant/namespace`, old ones `tenant/cluster/namespace`."""
    return full.partition("://")[2].rpartition("/")[0]


def partition_name(full: str, number: int) -> str:
    """The name by which a partition is a topic of its own."""
    return f"{full}-partition-{number}"


def without_partition(full: str) -> str:
    """The topic that a partition belongs to; other names stay what they are."""
    return _PARTITION.sub("", full)


def partition_number(full: str) -> int:
    """X of `-partition-X`, or -1."""
    found = _PARTITION.search(full)
    return int(found[1]) if found else -1


def http_path(full: str) -> str:
    """`domain/tenant/namespace/name` with the name encoded, as in the paths of the HTTP lookup."""
    domain, _, rest = full.partition("://")
    namespace, _, name = rest.rpartition("/")
    return f"{domain}/{namespace}/{quote(name, safe='')}"
