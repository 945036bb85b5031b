"""One topic name and how each door spells it.

The canonical name has three parts, tenant / namespace / topic. A door has a default tenant and
namespace, so that a client which allows no slash says just `orders`:

    door says                   canonical                      note
    orders                      public/default/orders          the door's defaults
    acme/shop/orders            acme/shop/orders
    acme/eu/shop/orders         acme / eu/shop / orders         four parts, as old Pulsar names: the
                                                               cluster is part of the namespace
    acme/orders                 refused                        two parts could mean two things
    ., .., "", 250 characters   refused                        as in Kafka
    anything but a-zA-Z0-9._-   refused                        (tenant, namespace: also = and :)
    orders-partition-3          refused                        it is how Pulsar spells partition 3
                                                               of `orders`, so no topic may be it

Names are for people and doors. They never become names of files, and nothing on disk but meta and
snapshots of group positions holds them: everything else goes by ids.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trilogue.broker.errors import InvalidName

LENGTH_MAX = 249
DEFAULT_TENANT = "public"
DEFAULT_NAMESPACE = "default"

_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
_SPACE = re.compile(r"[a-zA-Z0-9._=:-]+")
_PARTITION = re.compile(r"-partition-[0-9]+\Z")


@dataclass(frozen=True, slots=True, order=True)
class TopicName:
    """A topic's canonical name. Made by the parsers below, which check it."""

    tenant: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.tenant}/{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a door puts before a bare name."""

    tenant: str = DEFAULT_TENANT
    namespace: str = DEFAULT_NAMESPACE


DEFAULTS = Defaults()


def parse_kafka(text: str, defaults: Defaults = DEFAULTS) -> TopicName:
    """Read a topic name as Kafka clients send it, or refuse it."""
    parts = text.split("/")
    if len(parts) == 1:
        return TopicName(defaults.tenant, defaults.namespace, _topic(text))
    if len(parts) not in {3, 4}:
        raise InvalidName("a topic is `name` or `tenant/namespace/name`")
    tenant, *namespace, name = parts
    for part in (tenant, *namespace):
        _check(part, _SPACE)
    return TopicName(tenant, "/".join(namespace), _topic(name))


def spelled_kafka(name: TopicName, defaults: Defaults = DEFAULTS) -> str:
    """Write a name as a Kafka client of this door knows it; `parse_kafka` reads it back."""
    if name.tenant == defaults.tenant and name.namespace == defaults.namespace:
        return name.name
    return str(name)


def _topic(text: str) -> str:
    _check(text, _TOPIC)
    if _PARTITION.search(text):
        raise InvalidName("names ending in -partition-<number> mean a partition of another topic")
    return text


def _check(text: str, pattern: re.Pattern[str]) -> None:
    if not text:
        raise InvalidName("a name may not be empty")
    if len(text) > LENGTH_MAX:
        raise InvalidName(f"a name has at most {LENGTH_MAX} characters, not {len(text)}")
    if text in {".", ".."}:
        raise InvalidName(f"a name may not be {text!r}")
    if not pattern.fullmatch(text):
        raise InvalidName("a name is made of ASCII letters, digits, '.', '_' and '-'")
