"""ACLs in Kafka's words, as the CLI, the HTTP API and Kafka's tools write them.

Kafka's names of topics are relative to a namespace: `orders` is `public/default/orders`, prefixed
`or` is `public/default/or`, and `*` is every topic of the namespace. A name with a slash is
absolute, and `**` is every topic of every namespace. The cluster is `kafka-cluster`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from trilogue.broker.access.acls import ANY_NAME, Acl, Pattern, parse_principal
from trilogue.broker.access.authorizer import CLUSTER, Operation, ResourceKind
from trilogue.broker.errors import InvalidRequest
from trilogue.broker.names import DEFAULT_NAMES, NameDefaults

V = TypeVar("V")

EVERY_TOPIC = "**"
KAFKA_CLUSTER = "kafka-cluster"
KINDS: Mapping[str, ResourceKind] = {
    "TOPIC": ResourceKind.TOPIC,
    "GROUP": ResourceKind.GROUP,
    "CLUSTER": ResourceKind.CLUSTER,
    "TRANSACTIONAL_ID": ResourceKind.TRANSACTION,
    "DELEGATION_TOKEN": ResourceKind.DELEGATION_TOKEN,
    "USER": ResourceKind.USER,
}
OPERATIONS: Mapping[str, Operation] = {
    "ALL": Operation.ALL,
    "READ": Operation.READ,
    "WRITE": Operation.WRITE,
    "CREATE": Operation.CREATE,
    "DELETE": Operation.DELETE,
    "ALTER": Operation.ALTER,
    "DESCRIBE": Operation.DESCRIBE,
    "CLUSTER_ACTION": Operation.CLUSTER_ACTION,
    "DESCRIBE_CONFIGS": Operation.DESCRIBE_SETTINGS,
    "ALTER_CONFIGS": Operation.ALTER_SETTINGS,
    "IDEMPOTENT_WRITE": Operation.IDEMPOTENT_WRITE,
    "CREATE_TOKENS": Operation.CREATE_TOKENS,
    "DESCRIBE_TOKENS": Operation.DESCRIBE_TOKENS,
    "TWO_PHASE_COMMIT": Operation.TWO_PHASE_COMMIT,
}
PATTERNS: Mapping[str, Pattern] = {"LITERAL": Pattern.LITERAL, "PREFIXED": Pattern.PREFIXED}
PERMISSIONS: Mapping[str, bool] = {"ALLOW": True, "DENY": False}
_KIND_WORDS = {kind: word for word, kind in KINDS.items()}
_OPERATION_WORDS = {operation: word for word, operation in OPERATIONS.items()}


def parse_acl(words: Mapping[str, str]) -> Acl:
    """Return the ACL of a row with the fields of `format_acl`; raises InvalidRequest.

    `patternType` is LITERAL, `host` is `*` and `permissionType` ALLOW where they are missing.
    """
    unknown = set(words) - set(FIELDS)
    if unknown:
        raise InvalidRequest(f"an ACL has no field {min(unknown)}: {', '.join(FIELDS)}")
    kind = read_word(KINDS, words.get("resourceType", ""), "resourceType")
    pattern = read_word(PATTERNS, words.get("patternType", "LITERAL"), "patternType")
    default = KAFKA_CLUSTER if kind is ResourceKind.CLUSTER else ""
    pattern, name = to_canonical(kind, pattern, words.get("resourceName", default))
    return Acl(
        kind,
        pattern,
        name,
        parse_principal(words.get("principal", "")),
        words.get("host", "*"),
        read_word(OPERATIONS, words.get("operation", ""), "operation"),
        read_word(PERMISSIONS, words.get("permissionType", "ALLOW"), "permissionType"),
    )


FIELDS = (
    "resourceType",
    "patternType",
    "resourceName",
    "principal",
    "host",
    "operation",
    "permissionType",
)


def format_acl(acl: Acl) -> dict[str, str]:
    """Return an ACL as a row of Kafka's words."""
    pattern, name = to_kafka(acl)
    values = (
        _KIND_WORDS[acl.kind],
        pattern.name,
        name,
        str(acl.principal),
        acl.host,
        _OPERATION_WORDS[acl.operation],
        "ALLOW" if acl.allow else "DENY",
    )
    return dict(zip(FIELDS, values, strict=True))


def to_canonical(
    kind: ResourceKind, pattern: Pattern, name: str, defaults: NameDefaults = DEFAULT_NAMES
) -> tuple[Pattern, str]:
    """Return the pattern with the canonical name that a Kafka pattern stands for."""
    if kind is ResourceKind.CLUSTER:
        if name not in {KAFKA_CLUSTER, CLUSTER.name} or pattern is not Pattern.LITERAL:
            raise InvalidRequest(f"the only cluster is {KAFKA_CLUSTER}")
        return pattern, CLUSTER.name
    if kind is not ResourceKind.TOPIC or "/" in name or not name:
        return pattern, name
    if pattern is Pattern.LITERAL and name == EVERY_TOPIC:
        return pattern, ANY_NAME
    place = f"{defaults.tenant}/{defaults.namespace}/"
    if pattern is Pattern.LITERAL and name == ANY_NAME:
        return Pattern.PREFIXED, place
    return pattern, place + name


def to_kafka(acl: Acl, defaults: NameDefaults = DEFAULT_NAMES) -> tuple[Pattern, str]:
    """Return the Kafka pattern of an ACL: the inverse of `to_canonical`."""
    if acl.kind is ResourceKind.CLUSTER:
        return acl.pattern, KAFKA_CLUSTER
    if acl.kind is not ResourceKind.TOPIC:
        return acl.pattern, acl.name
    if acl.pattern is Pattern.LITERAL and acl.name == ANY_NAME:
        return acl.pattern, EVERY_TOPIC
    place = f"{defaults.tenant}/{defaults.namespace}/"
    if acl.pattern is Pattern.PREFIXED and acl.name == place:
        return Pattern.LITERAL, ANY_NAME
    relative = acl.name.removeprefix(place)
    return acl.pattern, relative if relative and "/" not in relative else acl.name


def read_word(words: Mapping[str, V], text: str, field: str) -> V:
    """Return the value of one of Kafka's words: `Describe-Configs` is DESCRIBE_CONFIGS.

    Raises InvalidRequest with the known words.
    """
    plain = _letters(text)
    for word, value in words.items():
        if plain == _letters(word):
            return value
    raise InvalidRequest(f"{field} {text[:50]!r} is none of {', '.join(words)}")


def _letters(text: str) -> str:
    return text.replace("_", "").replace("-", "").upper()
