"""Topic names and how each protocol spells them.

The canonical name has three parts, tenant / namespace / topic. A gateway has a default tenant and
namespace, so that a client whose protocol allows no slash names just `orders`:

    client's spelling           canonical                      note
    orders                      public/default/orders          the gateway's defaults
    acme/shop/orders            acme/shop/orders
    acme/eu/shop/orders         acme / eu/shop / orders         four parts, as old Pulsar names: the
                                                               cluster is part of the namespace
    acme/orders                 refused                        two parts could mean two things
    ., .., "", 250 characters   refused                        as in Kafka
    anything but a-zA-Z0-9._-   refused                        (tenant, namespace: also = and :)
    orders-partition-3          refused                        it is how Pulsar spells partition 3
                                                               of `orders`, so no topic may be it

Pulsar spells the same names with a domain, and allows more characters:

    orders                                          public/default/orders
    acme/shop/orders                                acme/shop/orders
    persistent://acme/shop/orders                   acme/shop/orders
    persistent://acme/eu/shop/orders                acme / eu/shop / orders, as above
    persistent://acme/shop/orders-partition-3       partition 3 of acme/shop/orders
    non-persistent://acme/shop/orders               the same name; `persistent` is False
    acme/eu/shop/orders, acme/orders                refused: short names have one or three parts
    persistent://acme/eu/shop/a/b                   refused: a topic's own name has no slash
    persistent://acme/shop/a%2Fb                    the topic `a%2Fb`: nothing is decoded
    persistent://acme/shop/größe 1                  a topic that Kafka cannot spell: it is not
                                                    shown to Kafka clients

TubeMQ spells names as Kafka does:

    orders, acme/shop/orders                        as above
    acme/a:b/orders, acme/a=b/orders                refused, and not shown: TubeMQ's own texts have
                                                    these characters between names

Only clients use names. They are no file names, and on disk only meta and the snapshots of group
positions have them: everything else uses ids.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from trilogue.broker.errors import InvalidName

LENGTH_MAX = 249
PULSAR_BYTES_MAX = 1_024  # of a topic's own name, in UTF-8
DEFAULT_TENANT = "public"
DEFAULT_NAMESPACE = "default"

_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
_SPACE = re.compile(r"[a-zA-Z0-9._=:-]+")
_PARTITION = re.compile(r"-partition-([0-9]+)\Z")
_TUBEMQ_MARKS = re.compile(r"[:=]")
_PULSAR_TOPIC = re.compile(r"[^/\x00-\x1f\x7f\ud800-\udfff]+")
_INDEX_DIGITS = 9  # of a partition's number: more is no number of a partition

PERSISTENT, NON_PERSISTENT = "persistent", "non-persistent"


class TopicName(NamedTuple):
    """A topic's canonical name, made by the parsers below, which check it.

    A tuple, because names are keys everywhere: it is hashed and compared four times as fast as a
    dataclass.
    """

    tenant: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.tenant}/{self.namespace}/{self.name}"

    @property
    def namespace_name(self) -> NamespaceName:
        """The namespace of the topic."""
        return NamespaceName(self.tenant, self.namespace)


# Topics that the broker itself writes (broker/internal).
OFFSETS_TOPIC = TopicName(DEFAULT_TENANT, DEFAULT_NAMESPACE, "__consumer_offsets")
TRANSACTIONS_TOPIC = TopicName(DEFAULT_TENANT, DEFAULT_NAMESPACE, "__transaction_state")
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})


class NamespaceName(NamedTuple):
    """A tenant and one of its namespaces; the cluster of an old name is part of the latter."""

    tenant: str
    namespace: str

    def __str__(self) -> str:
        return f"{self.tenant}/{self.namespace}"


class PulsarName(NamedTuple):
    """A topic, or one partition of it, as a Pulsar client names it."""

    topic: TopicName
    partition: int | None = None  # None: the bare name
    persistent: bool = True

    def __str__(self) -> str:
        return format_pulsar(self.topic, self.partition, persistent=self.persistent)


class NameDefaults(msgspec.Struct, frozen=True):
    """The tenant and namespace of a bare name."""

    tenant: str = DEFAULT_TENANT
    namespace: str = DEFAULT_NAMESPACE


DEFAULT_NAMES = NameDefaults()


def parse_kafka(text: str, defaults: NameDefaults = DEFAULT_NAMES) -> TopicName:
    """Parse a topic name of a Kafka client; InvalidName."""
    parts = text.split("/")
    if len(parts) == 1:
        return TopicName(defaults.tenant, defaults.namespace, _topic(text))
    if len(parts) not in {3, 4}:
        raise InvalidName("a topic is `name` or `tenant/namespace/name`")
    tenant, *namespace, name = parts
    for part in (tenant, *namespace):
        _check(part, _SPACE)
    return TopicName(tenant, "/".join(namespace), _topic(name))


def format_kafka(name: TopicName, defaults: NameDefaults = DEFAULT_NAMES) -> str:
    """Return a name as Kafka clients of this gateway spell it; inverse of `parse_kafka`."""
    if name.tenant == defaults.tenant and name.namespace == defaults.namespace:
        return name.name
    return str(name)


def parse_tubemq(text: str, defaults: NameDefaults = DEFAULT_NAMES) -> TopicName:
    """Parse a topic name of a TubeMQ client; InvalidName.

    The rules are Kafka's, and no part has a `:` or a `=`: those are separators in the texts that
    TubeMQ's messages hold (`brokerId:topic:partitionId`).
    """
    if _TUBEMQ_MARKS.search(text):
        raise InvalidName("a name that TubeMQ clients use has no ':' and no '='")
    return parse_kafka(text, defaults)


def format_tubemq(name: TopicName, defaults: NameDefaults = DEFAULT_NAMES) -> str:
    """Return a name as TubeMQ clients spell it; inverse of `parse_tubemq`."""
    return format_kafka(name, defaults)


def is_tubemq_name(name: TopicName) -> bool:
    """Whether TubeMQ clients can name this topic."""
    return is_kafka_name(name) and not _TUBEMQ_MARKS.search(str(name))


def is_kafka_name(name: TopicName) -> bool:
    """Whether Kafka clients can name this topic; Pulsar allows more characters."""
    return len(name.name) <= LENGTH_MAX and _TOPIC.fullmatch(name.name) is not None


def parse_pulsar(text: str, defaults: NameDefaults = DEFAULT_NAMES) -> PulsarName:
    """Parse a topic name of a Pulsar client, in any of its forms; InvalidName.

    Nothing is URL-decoded (docs/reference/wire/pulsar.md).
    """
    domain, separator, rest = text.partition("://")
    if not separator:
        domain, rest = PERSISTENT, text
    elif domain not in {PERSISTENT, NON_PERSISTENT}:
        raise InvalidName(f"a topic is {PERSISTENT}:// or {NON_PERSISTENT}://, not {domain[:40]}")
    parts = rest.split("/")
    if len(parts) == 1 and not separator:
        parts = [defaults.tenant, defaults.namespace, rest]
    if len(parts) not in ({3, 4} if separator else {3}):
        raise InvalidName(
            "a topic is `topic`, `tenant/namespace/topic` or "
            "`persistent://tenant/[cluster/]namespace/topic`"
        )
    tenant, *namespace, name = parts
    for part in (tenant, *namespace):
        _check(part, _SPACE)
    name, partition = split_partition(name)
    check_pulsar_topic(name)
    return PulsarName(TopicName(tenant, "/".join(namespace), name), partition, domain == PERSISTENT)


def split_partition(text: str) -> tuple[str, int | None]:
    """Split `-partition-<number>` off a topic's own name, if it has one."""
    found = _PARTITION.search(text)
    if found is None:
        return text, None
    digits = found[1]
    if len(digits) > _INDEX_DIGITS or (digits[0] == "0" and digits != "0"):
        raise InvalidName("-partition- is followed by the number of a partition")
    return text[: found.start()], int(digits)


def check_pulsar_topic(text: str) -> None:
    """Refuse what cannot be a topic's own name in Pulsar: InvalidName."""
    if not text:
        raise InvalidName("a name may not be empty")
    if len(text) > PULSAR_BYTES_MAX or len(text.encode(errors="replace")) > PULSAR_BYTES_MAX:
        raise InvalidName(f"a name has at most {PULSAR_BYTES_MAX} bytes")
    if text in {".", ".."}:
        raise InvalidName(f"a name may not be {text!r}")
    if not _PULSAR_TOPIC.fullmatch(text):
        raise InvalidName("a name has no slashes and no control characters")
    if _PARTITION.search(text):
        raise InvalidName("names ending in -partition-<number> mean a partition of another topic")


def format_pulsar(name: TopicName, partition: int | None = None, *, persistent: bool = True) -> str:
    """Return a name as Pulsar clients spell it; inverse of `parse_pulsar`."""
    domain = PERSISTENT if persistent else NON_PERSISTENT
    suffix = "" if partition is None else f"-partition-{partition}"
    return f"{domain}://{name}{suffix}"


def parse_namespace(text: str) -> NamespaceName:
    """Parse `tenant/namespace`, or the old `tenant/cluster/namespace`; InvalidName."""
    tenant, *namespace = text.split("/")
    if len(namespace) not in {1, 2}:
        raise InvalidName("a namespace is `tenant/namespace`")
    for part in (tenant, *namespace):
        _check(part, _SPACE)
    return NamespaceName(tenant, "/".join(namespace))


def check_tenant(text: str) -> str:
    """Return a tenant's name, or refuse it; clusters and roles follow the same rule."""
    _check(text, _SPACE)
    return text


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
