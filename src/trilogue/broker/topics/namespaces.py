"""Tenants, their namespaces, and the policies that hold for the topics in them.

The tenant `public` and its namespace `default` always exist, because every gateway needs a place
for a bare name. All others are created, each stored in meta as one setting:

    tenant/acme            {"admin_roles": [...], "allowed_clusters": [...]}
    namespace/acme/shop    {"policies": {...}, "permissions": {...}, "properties": {...}, ...}

A namespace that was not created *exists* as long as a topic is in it, and so does its tenant: Kafka
clients create topics in any namespace. It has no policies then, and setting the first one creates
it.

Changes are decided here and returned as a `MetadataChange`. The precondition of each is that the
setting did not change since; otherwise the caller gets `ConcurrentChange` and decides again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import msgspec

from trilogue.broker.errors import InUse, NamespaceExists, UnknownNamespace
from trilogue.broker.metadata_change import MetadataChange, plan_setting
from trilogue.broker.names import (
    DEFAULT_NAMESPACE,
    DEFAULT_TENANT,
    NamespaceName,
    TopicName,
    check_tenant,
)
from trilogue.broker.topics.default_policies import FIELDS, parse_default, resolve_defaults
from trilogue.broker.topics.default_policies import KEY as DEFAULT_KEY
from trilogue.broker.topics.policies import (
    DEFAULT_POLICIES,
    Policies,
    PolicyLevel,
    check_policy,
    read_topic_policies,
    resolve_policies,
)
from trilogue.log.errors import CorruptLog

TENANT_KEY, NAMESPACE_KEY = "tenant/", "namespace/"
TENANTS_MAX = 10_000
NAMESPACES_MAX = 10_000
VALUE_SIZE_MAX = 1 << 20  # of one namespace's policies, permissions and properties, as JSON
DEFAULT_NAME = NamespaceName(DEFAULT_TENANT, DEFAULT_NAMESPACE)


class Tenant(msgspec.Struct, frozen=True):
    """An owner of namespaces. The roles matter where clients authenticate."""

    admin_roles: tuple[str, ...] = ()
    allowed_clusters: tuple[str, ...] = ()


class Namespace(msgspec.Struct, frozen=True):
    """The overrides of a namespace; policies by their names in `POLICIES`."""

    policies: dict[str, Any] = {}
    permissions: dict[str, list[str]] = {}  # role -> actions
    properties: dict[str, str] = {}
    subscription_roles: dict[str, list[str]] = {}  # that alone may consume, by subscription


class Namespaces:
    """All tenants and namespaces, from meta's settings."""

    def __init__(
        self,
        settings: Mapping[str, str],
        *,
        topics: Callable[[NamespaceName], int],
        namespaces_with_topics: Callable[[], Iterable[NamespaceName]],
        changed: Callable[[NamespaceName], None],
        defaults: Policies = DEFAULT_POLICIES,
    ) -> None:
        self.defaults = defaults
        self._base_defaults = defaults
        self.default_texts: dict[str, str] = {}  # that were changed, by Pulsar's names
        self._topics = topics  # the number of topics in a namespace
        self._namespaces_with_topics = namespaces_with_topics  # namespaces with topics
        self._changed = changed
        self._texts: dict[str, str] = {}
        self._resolved: dict[NamespaceName, Policies] = {}  # of topics without their own
        # Called when administrators of a tenant or roles of subscriptions have changed.
        self.access_listeners: list[Callable[[], None]] = []
        self._tenants: dict[str, Tenant] = {DEFAULT_TENANT: Tenant()}
        self._admin_roles: frozenset[str] | None = None  # of all tenants; None: not collected yet
        self._namespaces: dict[NamespaceName, Namespace] = {DEFAULT_NAME: Namespace()}
        for key, text in settings.items():
            if key.startswith((TENANT_KEY, NAMESPACE_KEY)):
                self._load(key, text)
            elif key.startswith(DEFAULT_KEY):
                self.default_texts[key.removeprefix(DEFAULT_KEY)] = text
        self.defaults = resolve_defaults(self.default_texts, defaults)

    # -- queries

    @property
    def tenants(self) -> list[str]:
        """Names of all tenants, in order."""
        found = {*self._tenants}
        found.update(each.tenant for each in (*self._namespaces, *self._namespaces_with_topics()))
        return sorted(found)

    def tenant(self, name: str) -> Tenant:
        """Return a tenant; UnknownNamespace."""
        found = self._tenants.get(name)
        if found is not None:
            return found
        if self.namespace_names(name):
            return Tenant()
        raise UnknownNamespace(f"there is no tenant {name}")

    def has_admin(self, role: str) -> bool:
        """Return whether a role is an administrator of at least one tenant."""
        if self._admin_roles is None:
            roles = (each.admin_roles for each in self._tenants.values())
            self._admin_roles = frozenset(chain.from_iterable(roles))
        return role in self._admin_roles

    def namespace_names(self, tenant: str) -> list[NamespaceName]:
        """Return the namespaces of a tenant, in order."""
        every = {*self._namespaces, *self._namespaces_with_topics()}
        return sorted(each for each in every if each.tenant == tenant)

    def __iter__(self) -> Iterator[NamespaceName]:
        return iter(list(self._namespaces))

    def exists(self, name: NamespaceName) -> bool:
        """Whether it was created, or has a topic."""
        return name in self._namespaces or self._topics(name) > 0

    def namespace(self, name: NamespaceName) -> Namespace:
        """Return the overrides of a namespace; UnknownNamespace."""
        found = self._namespaces.get(name)
        if found is not None:
            return found
        if self._topics(name) > 0:
            return Namespace()
        raise UnknownNamespace(f"there is no namespace {name}")

    # -- policies

    def topic_policies(self, name: TopicName, settings: Mapping[str, str]) -> Policies:
        """Return the policies of a topic with these settings: topic > namespace > default.

        The cluster stores the result in `Partition.policies`, where callers read it.
        """
        own, namespace = read_topic_policies(settings), name.namespace_name
        if not own:
            return self.namespace_policies(namespace)
        found = self._namespaces.get(namespace)
        return resolve_policies(own, found.policies if found else {}, self.defaults)

    def namespace_policies(self, name: NamespaceName) -> Policies:
        """Return the policies of a topic in this namespace that has none of its own."""
        found = self._resolved.get(name)
        if found is None:
            namespace = self._namespaces.get(name)
            if namespace is None:
                return self.defaults
            found = self._resolved[name] = resolve_policies({}, namespace.policies, self.defaults)
        return found

    # -- changes

    def plan_put_tenant(self, name: str, tenant: Tenant, *, new: bool) -> MetadataChange[None]:
        """Return the change that creates or alters a tenant."""
        check_tenant(name)
        if new and name in self._tenants:
            raise NamespaceExists(f"there is a tenant {name}")
        if not new:
            self.tenant(name)
        if len(self._tenants) >= TENANTS_MAX and name not in self._tenants:
            raise InUse(f"there may be {TENANTS_MAX} tenants")
        return self._put(TENANT_KEY + name, tenant)

    def plan_delete_tenant(self, name: str) -> MetadataChange[None]:
        """Return the change that deletes a tenant without namespaces."""
        self.tenant(name)
        if name == DEFAULT_TENANT:
            raise InUse(f"the tenant {name} is where bare names of topics are")
        if self.namespace_names(name):
            raise InUse("the tenant still has namespaces")
        return self._delete(TENANT_KEY + name)

    def plan_create(self, name: NamespaceName, namespace: Namespace) -> MetadataChange[None]:
        """Return the change that creates a namespace of an existing tenant."""
        self.tenant(name.tenant)
        if name in self._namespaces:
            raise NamespaceExists(f"there is a namespace {name}")
        return self.plan_alter(name, namespace)

    def plan_alter(self, name: NamespaceName, namespace: Namespace) -> MetadataChange[None]:
        """Return the change that replaces the overrides of a namespace; InvalidSetting."""
        for policy, value in namespace.policies.items():
            check_policy(policy, PolicyLevel.NAMESPACE, value)
        resolve_policies({}, namespace.policies, self.defaults)
        if len(self._namespaces) >= NAMESPACES_MAX and name not in self._namespaces:
            raise InUse(f"there may be {NAMESPACES_MAX} namespaces")
        return self._put(f"{NAMESPACE_KEY}{name}", namespace)

    def plan_delete(self, name: NamespaceName) -> MetadataChange[None]:
        """Return the change that deletes a namespace without topics."""
        if name == DEFAULT_NAME:
            raise InUse(f"the namespace {name} is where bare names of topics are")
        self.namespace(name)
        if self._topics(name) > 0:
            raise InUse("the namespace still has topics")
        return self._delete(f"{NAMESPACE_KEY}{name}")

    def plan_set_default(self, name: str, text: str | None) -> MetadataChange[None]:
        """Return the change of the broker's default of a policy; None: as it was at first.

        Raises InvalidSetting.
        """
        key, present = DEFAULT_KEY + name, self.default_texts.get(name)
        if text is not None or name not in FIELDS:
            parse_default(name, text or "")
        return plan_setting(key, present, text, self.apply_default)

    def apply_default(self, key: str, text: str | None) -> None:
        """Apply a default that this node or another one wrote; None: it was deleted."""
        name = key.removeprefix(DEFAULT_KEY)
        self.default_texts.pop(name, None)
        if text is not None:
            self.default_texts[name] = text
        self.defaults = resolve_defaults(self.default_texts, self._base_defaults)
        self._resolved.clear()
        for namespace in {*self._namespaces, *self._namespaces_with_topics()}:
            self._changed(namespace)

    # -- inside

    def _put(self, key: str, value: Tenant | Namespace) -> MetadataChange[None]:
        text = msgspec.json.encode(value).decode()
        if len(text) > VALUE_SIZE_MAX:
            raise InUse(f"at most {VALUE_SIZE_MAX} bytes are kept")
        return plan_setting(key, self._texts.get(key), text, self.apply_setting)

    def _delete(self, key: str) -> MetadataChange[None]:
        return plan_setting(key, self._texts.get(key), None, self.apply_setting)

    def apply_setting(self, key: str, text: str | None) -> None:
        """Apply a setting that this node or another one wrote; None: it was deleted."""
        if text is None:
            self._forget(key)
        else:
            self._load(key, text)

    def _on_access_change(self) -> None:
        self._admin_roles = None
        for listener in self.access_listeners:
            listener()

    def _load(self, key: str, text: str) -> None:
        kind, _, name = key.partition("/")
        changes_roles = False
        try:
            if key.startswith(TENANT_KEY):
                self._tenants[name] = msgspec.json.decode(text, type=Tenant)
                self._on_access_change()
            else:
                tenant, _, rest = name.partition("/")
                decoded = msgspec.json.decode(text, type=Namespace)
                before = self._namespaces.get(NamespaceName(tenant, rest), Namespace())
                changes_roles = _role_rules(before) != _role_rules(decoded)
                self._namespaces[NamespaceName(tenant, rest)] = decoded
        except msgspec.DecodeError as error:
            raise CorruptLog(f"what meta keeps of {kind} {name} cannot be read") from error
        self._texts[key] = text
        self._resolved.clear()
        if key.startswith(NAMESPACE_KEY):
            self._changed(NamespaceName(tenant, rest))
        if changes_roles:
            self._on_access_change()

    def _forget(self, key: str) -> None:
        self._texts.pop(key, None)
        self._resolved.clear()
        _, _, name = key.partition("/")
        if key.startswith(TENANT_KEY):
            self._tenants.pop(name, None)
            self._on_access_change()
            return
        tenant, _, rest = name.partition("/")
        self._namespaces.pop(NamespaceName(tenant, rest), None)
        self._changed(NamespaceName(tenant, rest))


def _role_rules(namespace: Namespace) -> tuple[object, ...]:
    """Return what decides which roles may use the subscriptions of a namespace."""
    return namespace.subscription_roles, namespace.policies.get("subscriptionAuthMode")
