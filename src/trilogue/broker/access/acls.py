"""Access control lists: Kafka's model, for the resources of all protocols, stored in meta.

An ACL allows or denies one principal, from one host, one operation on the resources of one pattern:

    topic  prefixed  public/default/orders  User:alice  *  read  allow

A pattern is a name (LITERAL), the beginning of names (PREFIXED), or the literal name `*`, which is
every resource of its kind. Names are canonical: topics have their tenant and namespace. A
namespace's and a tenant's own resources (policies, settings) are protected by the topic patterns
that cover them whole: `tenant/namespace/` and `tenant/`.

Meta has one setting for each ACL, `access/acls/["topic","prefixed","public/default/",...]`. Changes
are decided here and returned as a `MetadataChange`; decisions after it follow the new list.

Source: KIP-11, KIP-290.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, unique
from typing import NamedTuple

import msgspec

from trilogue.broker.access.authorizer import (
    USER,
    Operation,
    Principal,
    Resource,
    ResourceKind,
)
from trilogue.broker.errors import ConcurrentChange, InUse, InvalidRequest
from trilogue.broker.metadata_change import MetadataChange
from trilogue.log.errors import CorruptLog
from trilogue.meta.operations import DeleteSetting, Op, PutSetting

PREFIX = "access/acls/"
STORED = "1"  # the value of each setting; the key says it all
ACLS_MAX = 50_000
NAME_BYTES_MAX = 4_096
ANY_NAME = "*"
ANY_HOST = "*"
ANY_USER = Principal(USER, "*")


@unique
class Pattern(Enum):
    """How the name of an ACL is compared with the name of a resource."""

    LITERAL = "literal"
    PREFIXED = "prefixed"


class Acl(NamedTuple):
    """One entry of the list."""

    kind: ResourceKind
    pattern: Pattern
    name: str  # canonical; "*" with LITERAL is every resource of the kind
    principal: Principal
    host: str  # a client's address, or "*"
    operation: Operation
    allow: bool  # False: deny, which is stronger than any permission

    def matches(self, kind: ResourceKind, name: str) -> bool:
        """Return whether the pattern has the resource of this canonical name."""
        if kind is not self.kind:
            return False
        if self.pattern is Pattern.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, ANY_NAME)


class AclStore:
    """All ACLs of a cluster, indexed by the names of their patterns."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.listeners: list[Callable[[], None]] = []  # called after each change
        self._acls: set[Acl] = set()
        self._literal: dict[tuple[ResourceKind, str], dict[Acl, None]] = {}
        self._prefixed: dict[tuple[ResourceKind, str], dict[Acl, None]] = {}
        self._sizes: Counter[int] = Counter()  # of prefixes: how many ACLs have one that long
        self._prefix_sizes: tuple[int, ...] = ()
        for key in settings:
            if key.startswith(PREFIX):
                self._add(_decode(key))

    def __iter__(self) -> Iterator[Acl]:
        return iter(sort_acls(self._acls))

    def unsorted(self) -> list[Acl]:
        """Return all ACLs, in no order."""
        return list(self._acls)

    def __len__(self) -> int:
        return len(self._acls)

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._acls

    # -- lookups of the authorizer

    def find(self, kind: ResourceKind, name: str) -> Iterator[Acl]:
        """Iterate over the ACLs whose pattern has this resource."""
        yield from self._literal.get((kind, name), ())
        if name != ANY_NAME:
            yield from self._literal.get((kind, ANY_NAME), ())
        yield from self._find_prefixed(kind, name)

    def find_covering(self, kind: ResourceKind, prefix: str) -> Iterator[Acl]:
        """Iterate over the ACLs whose pattern has every resource that begins with `prefix`."""
        yield from self._literal.get((kind, ANY_NAME), ())
        yield from self._find_prefixed(kind, prefix)

    def of_kind(self, kind: ResourceKind) -> Iterator[Acl]:
        """Iterate over the ACLs of a kind of resource, in no order."""
        return (acl for acl in self._acls if acl.kind is kind)

    def _find_prefixed(self, kind: ResourceKind, name: str) -> Iterator[Acl]:
        size = len(name)
        for prefix_size in self._prefix_sizes:
            if prefix_size > size:
                break
            yield from self._prefixed.get((kind, name[:prefix_size]), ())

    # -- changes

    def plan_create(self, acls: Iterable[Acl]) -> MetadataChange[None]:
        """Return the change that adds ACLs; those that exist stay as they are.

        Raises InvalidRequest for a name that is empty or too long, InUse beyond the limit.
        """
        return self.plan_replace(acls, ())

    def plan_delete(self, acls: Iterable[Acl]) -> MetadataChange[None]:
        """Return the change that removes ACLs; those that do not exist are no error."""
        return self.plan_replace((), acls)

    def plan_replace(self, new: Iterable[Acl], old: Iterable[Acl]) -> MetadataChange[None]:
        """Return the change that removes `old` ACLs and adds `new` ones, together."""
        added = [acl for acl in dict.fromkeys(new) if acl not in self._acls]
        kept = set(added)
        removed = [acl for acl in dict.fromkeys(old) if acl in self._acls and acl not in kept]
        if len(self._acls) + len(added) - len(removed) > ACLS_MAX:
            raise InUse(f"there may be {ACLS_MAX} ACLs")
        for acl in added:
            check_acl(acl)

        def ops() -> list[Op]:
            deleted: list[Op] = [DeleteSetting(_key(acl)) for acl in removed]
            return [*deleted, *(PutSetting(_key(acl), STORED) for acl in added)]

        def apply() -> None:
            for acl in removed:
                self._remove(acl)
            for acl in added:
                self._add(acl)
            self._notify()

        return MetadataChange(
            ops, (), apply, on_conflict=ConcurrentChange("ACLs were changed meanwhile")
        )

    def apply_setting(self, key: str, text: str | None) -> None:
        """Apply a setting that another node wrote; None: it was deleted."""
        acl = _decode(key)
        if text is None:
            self._remove(acl)
        else:
            self._add(acl)
        self._notify()

    def _notify(self) -> None:
        for listener in self.listeners:
            listener()

    def _add(self, acl: Acl) -> None:
        if acl not in self._acls:
            self._acls.add(acl)
            self._index(acl).setdefault((acl.kind, acl.name), {})[acl] = None
            self._count_prefix(acl, 1)

    def _remove(self, acl: Acl) -> None:
        if acl not in self._acls:
            return
        self._acls.discard(acl)
        index, key = self._index(acl), (acl.kind, acl.name)
        del index[key][acl]
        if not index[key]:
            del index[key]
        self._count_prefix(acl, -1)

    def _index(self, acl: Acl) -> dict[tuple[ResourceKind, str], dict[Acl, None]]:
        return self._prefixed if acl.pattern is Pattern.PREFIXED else self._literal

    def _count_prefix(self, acl: Acl, step: int) -> None:
        if acl.pattern is not Pattern.PREFIXED:
            return
        size = len(acl.name)
        self._sizes[size] += step
        if not self._sizes[size]:
            del self._sizes[size]
        if (size in self._sizes) != (size in self._prefix_sizes):
            self._prefix_sizes = tuple(sorted(self._sizes))


def sort_acls(acls: Iterable[Acl]) -> list[Acl]:
    """Return ACLs in the order in which they are listed."""
    return sorted(acls, key=_key)


def resource_of(acl: Acl) -> Resource:
    """Return the resource that an ACL names, for texts and the audit log."""
    suffix = ANY_NAME if acl.pattern is Pattern.PREFIXED else ""
    return Resource(acl.kind, acl.name + suffix)


def check_acl(acl: Acl) -> None:
    """Raise InvalidRequest for a name that is empty, too long, or not to be printed."""
    for text in (acl.name, acl.principal.name, acl.host):
        if not text:
            raise InvalidRequest("an ACL has a resource name, a principal and a host")
        if len(text.encode(errors="replace")) > NAME_BYTES_MAX or not text.isprintable():
            raise InvalidRequest(
                f"the names in an ACL have at most {NAME_BYTES_MAX} bytes and no control characters"
            )
    if acl.pattern is Pattern.PREFIXED and acl.name == ANY_NAME:
        raise InvalidRequest("the prefix * is no prefix of names: use the literal name *")


def _key(acl: Acl) -> str:
    parts = (
        acl.kind.value,
        acl.pattern.value,
        acl.name,
        str(acl.principal),
        acl.host,
        acl.operation.value,
        "allow" if acl.allow else "deny",
    )
    return PREFIX + msgspec.json.encode(parts).decode()


def _decode(key: str) -> Acl:
    try:
        kind, pattern, name, principal, host, operation, verdict = msgspec.json.decode(
            key.removeprefix(PREFIX), type=tuple[str, str, str, str, str, str, str]
        )
        return Acl(
            ResourceKind(kind),
            Pattern(pattern),
            name,
            parse_principal(principal),
            host,
            Operation(operation),
            {"allow": True, "deny": False}[verdict],
        )
    except (msgspec.MsgspecError, ValueError, KeyError, InvalidRequest) as error:
        raise CorruptLog(f"an ACL that cannot be read: {key!r}") from error


def parse_principal(text: str) -> Principal:
    """Parse `User:name`; raises InvalidRequest."""
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise InvalidRequest(f"a principal is written User:name, not {text[:100]!r}")
    return Principal(kind, name)
