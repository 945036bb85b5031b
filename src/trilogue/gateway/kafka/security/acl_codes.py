"""The numbers of ACLs in Kafka's requests, and their filters.

Names are those of broker/access/acl_names.py: relative to public/default unless they have a slash.
"""

from __future__ import annotations

from collections.abc import Mapping

from trilogue.broker.access.acl_names import to_canonical, to_kafka
from trilogue.broker.access.acls import Acl, Pattern, parse_principal
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import InvalidRequest
from trilogue.gateway.kafka.authorized_operations import OPERATION_CODES

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
ALL_OPERATIONS = 2
DENY, ALLOW = 2, 3
KINDS: Mapping[int, ResourceKind] = {
    2: ResourceKind.TOPIC,
    3: ResourceKind.GROUP,
    4: ResourceKind.CLUSTER,
    5: ResourceKind.TRANSACTION,
    6: ResourceKind.DELEGATION_TOKEN,
    7: ResourceKind.USER,
}
KIND_CODES = {kind: code for code, kind in KINDS.items()}
OPERATIONS: Mapping[int, Operation] = {
    **{code: operation for operation, code in OPERATION_CODES.items()},
    ALL_OPERATIONS: Operation.ALL,
    13: Operation.CREATE_TOKENS,
    14: Operation.DESCRIBE_TOKENS,
    15: Operation.TWO_PHASE_COMMIT,
}
CODES = {operation: code for code, operation in OPERATIONS.items()}


def parse_acl(
    *,
    kind: int,
    name: str,
    pattern: int,
    principal: str,
    host: str,
    operation: int,
    permission: int,
) -> Acl:
    """Return the ACL that a request creates; raises InvalidRequest."""
    if kind not in KINDS or operation not in OPERATIONS:
        raise InvalidRequest("an ACL names one type of resource and one operation")
    if pattern not in {LITERAL, PREFIXED} or permission not in {DENY, ALLOW}:
        raise InvalidRequest("an ACL is literal or prefixed, and allows or denies")
    if not name:
        raise InvalidRequest("an ACL names a resource")
    stored_pattern, stored_name = to_canonical(
        KINDS[kind], Pattern.LITERAL if pattern == LITERAL else Pattern.PREFIXED, name
    )
    return Acl(
        KINDS[kind],
        stored_pattern,
        stored_name,
        parse_principal(principal),
        host,
        OPERATIONS[operation],
        permission == ALLOW,
    )


def show_name(acl: Acl) -> tuple[int, str]:
    """Return the pattern's number and the name as Kafka's clients see an ACL."""
    pattern, name = to_kafka(acl)
    return LITERAL if pattern is Pattern.LITERAL else PREFIXED, name


def matches(
    acl: Acl,
    *,
    kind: int,
    name: str | None,
    pattern: int,
    principal: str | None,
    host: str | None,
    operation: int,
    permission: int,
) -> bool:
    """Return whether an ACL passes a filter; None and ANY let everything pass."""
    shown_pattern, shown_name = show_name(acl)
    return (
        kind in {ANY, KIND_CODES[acl.kind]}
        and principal in {None, str(acl.principal)}
        and host in {None, acl.host}
        and operation in {ANY, CODES[acl.operation]}
        and permission in {ANY, ALLOW if acl.allow else DENY}
        and (pattern in {ANY, MATCH} or pattern == shown_pattern)
        and (name is None or _has_name(acl, pattern, name, shown_name))
    )


def _has_name(acl: Acl, pattern: int, name: str, shown_name: str) -> bool:
    if pattern != MATCH:
        return name == shown_name
    if acl.kind is ResourceKind.CLUSTER:
        return name == shown_name
    _, stored = to_canonical(acl.kind, Pattern.LITERAL, name)
    return name == shown_name or acl.matches(acl.kind, stored)
