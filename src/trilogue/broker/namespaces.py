"""Tenants, their namespaces, and what holds for the topics in them.

Two of them are always there, because every door needs a place for a bare name: the tenant `public`
and its namespace `default`. All others are made, each kept in meta as one setting:

    tenant/acme            {"admin_roles": [...], "allowed_clusters": [...]}
    namespace/acme/shop    {"policies": {...}, "permissions": {...}, "properties": {...}, ...}

A namespace that nobody made *exists* all the same while a topic is in it, and so does its tenant:
Kafka clients make topics anywhere, as they always could. It has no policies then, and the first one
that is set makes it.

Changes are decided here and returned as a `Commit`. Each expects the setting to be as it was when
it was decided; who was outrun (`Outrun`) decides again on what is there now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from trilogue.broker.commit import Commit
from trilogue.broker.errors import InUse, NamespaceExists, Outrun, UnknownNamespace
from trilogue.broker.names import (
    DEFAULT_NAMESPACE,
    DEFAULT_TENANT,
    NamespaceName,
    TopicName,
    check_tenant,
)
from trilogue.broker.policies import (
    BROKER_POLICIES,
    Level,
    Policies,
    check_policy,
    own_policies,
    resolve_policies,
)
from trilogue.log.errors import CorruptLog
from trilogue.meta.port import DeleteSetting, PutSetting, SettingIs

TENANT_KEY, NAMESPACE_KEY = "tenant/", "namespace/"
TENANTS_MAX = 10_000
NAMESPACES_MAX = 10_000
VALUE_SIZE_MAX = 1 << 20  # of one namespace's policies, permissions and properties, as JSON
DEFAULT_NAME = NamespaceName(DEFAULT_TENANT, DEFAULT_NAMESPACE)


class Tenant(msgspec.Struct, frozen=True):
    """Who owns namespaces. The roles are kept for the time when there are users."""

    admin_roles: tuple[str, ...] = ()
    allowed_clusters: tuple[str, ...] = ()


class Namespace(msgspec.Struct, frozen=True):
    """What was said for a namespace; policies by their names in `POLICIES`."""

    policies: dict[str, Any] = {}
    permissions: dict[str, list[str]] = {}  # role -> actions
    properties: dict[str, str] = {}


class Namespaces:
    """All tenants and namespaces, from meta's settings; changed through commits only."""

    def __init__(
        self,
        settings: Mapping[str, str],
        *,
        topics: Callable[[NamespaceName], int],
        homes: Callable[[], Iterable[NamespaceName]],
        changed: Callable[[NamespaceName], None],
        defaults: Policies = BROKER_POLICIES,
    ) -> None:
        self.defaults = defaults
        self._topics = topics  # how many are in a namespace
        self._homes = homes  # namespaces with topics
        self._changed = changed
        self._texts: dict[str, str] = {}
        self._resolved: dict[NamespaceName, Policies] = {}  # of topics that set nothing themselves
        self._tenants: dict[str, Tenant] = {DEFAULT_TENANT: Tenant()}
        self._namespaces: dict[NamespaceName, Namespace] = {DEFAULT_NAME: Namespace()}
        for key, text in settings.items():
            if key.startswith((TENANT_KEY, NAMESPACE_KEY)):
                self._take(key, text)

    # -- what there is

    @property
    def tenants(self) -> list[str]:
        """Names of all tenants, in order."""
        found = {*self._tenants}
        found.update(each.tenant for each in (*self._namespaces, *self._homes()))
        return sorted(found)

    def tenant(self, name: str) -> Tenant:
        """Return a tenant, or say that there is none."""
        found = self._tenants.get(name)
        if found is not None:
            return found
        if self.names(name):
            return Tenant()
        raise UnknownNamespace(f"there is no tenant {name}")

    def names(self, tenant: str) -> list[NamespaceName]:
        """Return the namespaces of a tenant, in order."""
        every = {*self._namespaces, *self._homes()}
        return sorted(each for each in every if each.tenant == tenant)

    def __iter__(self) -> Iterator[NamespaceName]:
        return iter(list(self._namespaces))

    def exists(self, name: NamespaceName) -> bool:
        """Whether it was made, or has a topic."""
        return name in self._namespaces or self._topics(name) > 0

    def find(self, name: NamespaceName) -> Namespace:
        """Return what was said for a namespace, or say that it does not exist."""
        found = self._namespaces.get(name)
        if found is not None:
            return found
        if self._topics(name) > 0:
            return Namespace()
        raise UnknownNamespace(f"there is no namespace {name}")

    # -- policies

    def policies(self, name: TopicName, settings: Mapping[str, str]) -> Policies:
        """Resolve what holds for a topic with these settings: topic > namespace > default.

        Kept at each partition by the cluster; ask `Partition.policies` where there is one.
        """
        own, home = own_policies(settings), name.home
        if not own:
            return self.policies_of(home)
        said = self._namespaces.get(home)
        return resolve_policies(own, said.policies if said else {}, self.defaults)

    def policies_of(self, name: NamespaceName) -> Policies:
        """Return what holds for a topic in this namespace that sets nothing itself."""
        found = self._resolved.get(name)
        if found is None:
            said = self._namespaces.get(name)
            if said is None:
                return self.defaults
            found = self._resolved[name] = resolve_policies({}, said.policies, self.defaults)
        return found

    # -- changes

    def plan_put_tenant(self, name: str, tenant: Tenant, *, new: bool) -> Commit[None]:
        """Decide to make a tenant, or to change one."""
        check_tenant(name)
        if new and name in self._tenants:
            raise NamespaceExists(f"there is a tenant {name}")
        if not new:
            self.tenant(name)
        if len(self._tenants) >= TENANTS_MAX and name not in self._tenants:
            raise InUse(f"there may be {TENANTS_MAX} tenants")
        return self._put(TENANT_KEY + name, tenant)

    def plan_delete_tenant(self, name: str) -> Commit[None]:
        """Decide to forget a tenant that has no namespaces."""
        self.tenant(name)
        if name == DEFAULT_TENANT:
            raise InUse(f"the tenant {name} is where bare names of topics are")
        if self.names(name):
            raise InUse("the tenant still has namespaces")
        return self._delete(TENANT_KEY + name)

    def plan_create(self, name: NamespaceName, namespace: Namespace) -> Commit[None]:
        """Decide to make a namespace of a tenant that exists."""
        self.tenant(name.tenant)
        if name in self._namespaces:
            raise NamespaceExists(f"there is a namespace {name}")
        return self.plan_alter(name, namespace)

    def plan_alter(self, name: NamespaceName, namespace: Namespace) -> Commit[None]:
        """Decide what is said for a namespace from here on; values are checked."""
        for policy, value in namespace.policies.items():
            check_policy(policy, Level.NAMESPACE, value)
        resolve_policies({}, namespace.policies, self.defaults)
        if len(self._namespaces) >= NAMESPACES_MAX and name not in self._namespaces:
            raise InUse(f"there may be {NAMESPACES_MAX} namespaces")
        return self._put(f"{NAMESPACE_KEY}{name}", namespace)

    def plan_delete(self, name: NamespaceName) -> Commit[None]:
        """Decide to forget a namespace that has no topics."""
        if name == DEFAULT_NAME:
            raise InUse(f"the namespace {name} is where bare names of topics are")
        self.find(name)
        if self._topics(name) > 0:
            raise InUse("the namespace still has topics")
        return self._delete(f"{NAMESPACE_KEY}{name}")

    # -- inside

    def _put(self, key: str, value: Tenant | Namespace) -> Commit[None]:
        text = msgspec.json.encode(value).decode()
        if len(text) > VALUE_SIZE_MAX:
            raise InUse(f"at most {VALUE_SIZE_MAX} bytes are kept")
        return Commit(
            lambda: [PutSetting(key, text)],
            (SettingIs(key, self._texts.get(key)),),
            lambda: self._take(key, text),
            outrun=Outrun("it was changed meanwhile"),
        )

    def _delete(self, key: str) -> Commit[None]:
        return Commit(
            lambda: [DeleteSetting(key)],
            (SettingIs(key, self._texts.get(key)),),
            lambda: self._forget(key),
            outrun=Outrun("it was changed meanwhile"),
        )

    def _take(self, key: str, text: str) -> None:
        kind, _, name = key.partition("/")
        try:
            if key.startswith(TENANT_KEY):
                self._tenants[name] = msgspec.json.decode(text, type=Tenant)
            else:
                tenant, _, rest = name.partition("/")
                decoded = msgspec.json.decode(text, type=Namespace)
                self._namespaces[NamespaceName(tenant, rest)] = decoded
        except msgspec.DecodeError as error:
            raise CorruptLog(f"what meta keeps of {kind} {name} cannot be read") from error
        self._texts[key] = text
        self._resolved.clear()
        if key.startswith(NAMESPACE_KEY):
            self._changed(NamespaceName(tenant, rest))

    def _forget(self, key: str) -> None:
        self._texts.pop(key, None)
        self._resolved.clear()
        _, _, name = key.partition("/")
        if key.startswith(TENANT_KEY):
            self._tenants.pop(name, None)
            return
        tenant, _, rest = name.partition("/")
        self._namespaces.pop(NamespaceName(tenant, rest), None)
        self._changed(NamespaceName(tenant, rest))
