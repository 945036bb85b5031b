"""Clusters, tenants, brokers and lookups: /admin/v2/clusters, /tenants, /brokers, /lookup/v2.

There is one cluster (the setting `pulsar.cluster`) and one broker, this node. Creating the cluster
again is answered as by a real broker; creating another one is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import InvalidSetting, NotOwner, NotServed, UnknownNamespace
from trilogue.broker.names import check_tenant
from trilogue.broker.topics.default_policies import FIELDS, format_default
from trilogue.broker.topics.lookup import find_owner, is_coordinator_topic
from trilogue.broker.topics.namespaces import Tenant
from trilogue.gateway.http.pulsar.admin_request import AdminRequest, AdminRoute, Reply
from trilogue.gateway.http.pulsar.namespaces import BUNDLE
from trilogue.gateway.http.request_limits import HttpError

ROLES_MAX = 1_000
OLD_PLACE = "{tenant}/{cluster}/{namespace}"
LOOKUP_PLACES = (
    ("topic", "{tenant}/{namespace}"),
    ("topic", OLD_PLACE),
    ("destination", OLD_PLACE),
)
BUNDLE_STATUS = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
VERSION = "4.0.7"  # of Pulsar, whose REST API this is


class TenantBody(msgspec.Struct, rename="camel"):
    """The administrators of a tenant, and the clusters of its topics."""

    admin_roles: list[str] = []
    allowed_clusters: list[str] | None = None


# -- clusters


def list_clusters(request: AdminRequest) -> object:
    """Return the only cluster."""
    return [request.gateway.settings.cluster]


def get_cluster(request: AdminRequest) -> object:
    """Return the addresses of the cluster."""
    check_cluster(request)
    http_url, https_url = web_urls(request)
    addresses = {
        "serviceUrl": http_url,
        "serviceUrlTls": https_url,
        "brokerServiceUrl": request.gateway.url,
        "brokerServiceUrlTls": request.gateway.tls_url,
    }
    return {
        **{name: url for name, url in addresses.items() if url},
        "brokerClientTlsEnabled": False,
        "tlsAllowInsecureConnection": False,
    }


def create_cluster(request: AdminRequest) -> object:
    """Reject: the one cluster exists."""
    if request.params["name"] == request.gateway.settings.cluster:
        raise HttpError(409, "Cluster already exists")
    raise HttpError(412, f"there is one cluster, {request.gateway.settings.cluster}")


def change_cluster(request: AdminRequest) -> object:
    """Reject: the addresses are settings of the node."""
    check_cluster(request)
    raise HttpError(405, "the cluster's addresses are settings of the node (advertise.pulsar)")


def check_cluster(request: AdminRequest) -> None:
    """Refuse the name of another cluster: HttpError 404."""
    if request.params["name"] != request.gateway.settings.cluster:
        raise HttpError(404, "Cluster does not exist")


def web_urls(request: AdminRequest) -> tuple[str, str]:
    """Return the URLs of this server by HTTP and by HTTPS, "" for the one that was not used.

    The host is the one that the client used.
    """
    url = request.http.url
    found = f"{url.scheme}://{url.netloc}"
    return ("", found) if url.scheme == "https" else (found, "")


def other_web_urls(listeners: Mapping[str, str]) -> tuple[str, str]:
    """Return the URLs of another node by HTTP and by HTTPS, "" for what it has not."""
    http, https = listeners.get("http"), listeners.get("https")
    return (f"http://{http}" if http else "", f"https://{https}" if https else "")


# -- tenants


def list_tenants(request: AdminRequest) -> object:
    """Return all tenants."""
    return request.broker.namespaces.tenants


def get_tenant(request: AdminRequest) -> object:
    """Return the configuration of a tenant."""
    try:
        found = request.broker.namespaces.tenant(request.params["tenant"])
    except UnknownNamespace as error:
        raise HttpError(404, "Tenant does not exist") from error
    here = [request.gateway.settings.cluster]
    return {
        "adminRoles": list(found.admin_roles),
        "allowedClusters": list(found.allowed_clusters) or here,
    }


async def create_tenant(request: AdminRequest) -> None:
    """Create a tenant."""
    name, made = check_tenant(request.params["tenant"]), _read_tenant(request)
    known = request.broker.namespaces
    await request.commit_change(lambda: known.plan_put_tenant(name, made, new=True))


async def update_tenant(request: AdminRequest) -> None:
    """Change a tenant."""
    name, made = request.params["tenant"], _read_tenant(request)
    known = request.broker.namespaces
    await request.commit_change(lambda: known.plan_put_tenant(name, made, new=False))


async def delete_tenant(request: AdminRequest) -> None:
    """Delete a tenant without namespaces; `force` deletes empty namespaces first."""
    name, known = request.params["tenant"], request.broker.namespaces
    if request.flag("force"):
        for each in known.namespace_names(name):
            await request.commit_change(lambda each=each: known.plan_delete(each))  # type: ignore[misc]
    await request.commit_change(lambda: known.plan_delete_tenant(name))


def _read_tenant(request: AdminRequest) -> Tenant:
    body = request.json(TenantBody) if request.body else TenantBody()
    if not body.allowed_clusters:
        raise InvalidSetting("Clusters cannot be null")
    if body.allowed_clusters != [request.gateway.settings.cluster]:
        raise InvalidSetting("Clusters do not exist")
    if len(body.admin_roles) > ROLES_MAX:
        raise InvalidSetting(f"a tenant has at most {ROLES_MAX} roles")
    return Tenant(tuple(body.admin_roles), tuple(body.allowed_clusters))


# -- brokers


def list_brokers(request: AdminRequest) -> object:
    """Return the HTTP addresses of all nodes."""
    return list(_broker_ids(request).values())


def get_owned_namespaces(request: AdminRequest) -> object:
    """Return the bundles of a broker: of the namespaces with a partition that it has.

    Raises NotOwner for another node, which answers for itself.
    """
    cluster, wanted = request.broker.cluster, request.params["broker"]
    node_ids = [each for each, broker_id in _broker_ids(request).items() if broker_id == wanted]
    if not node_ids:
        raise HttpError(404, f"Broker id {wanted[:200]!r} not found in available brokers.")
    if node_ids[0] != cluster.node_id:
        raise NotOwner(f"node {node_ids[0]} is the broker", node_ids[0])
    check_cluster(request)
    owned = {
        topic.name.namespace_name
        for topic in cluster
        if any(not partition.is_remote for partition in topic.partitions)
    }
    return {f"{name}/{BUNDLE}": BUNDLE_STATUS for name in sorted(map(str, owned))}


def _broker_ids(request: AdminRequest) -> dict[int, str]:
    """Return the HTTP addresses of nodes, which are their names for Pulsar, by node id."""
    cluster, is_tls = request.broker.cluster, request.http.url.scheme == "https"
    return {
        node_id: request.http.url.netloc
        if node_id == cluster.node_id
        else cluster.ownership.listeners(node_id).get("https" if is_tls else "http", "")
        for node_id in cluster.ownership.node_ids
    }


def get_leader(request: AdminRequest) -> object:
    """Return this broker: each node makes changes itself."""
    return {"serviceUrl": "".join(web_urls(request)), "brokerId": request.http.url.netloc}


def check_health(request: AdminRequest) -> object:
    """Return ok: a node with failed storage exits and serves nothing."""
    del request
    return Reply(200, b"ok", "text/plain")


def get_version(request: AdminRequest) -> object:
    """Return the version of Pulsar's REST API."""
    del request
    return Reply(200, VERSION.encode(), "text/plain")


def list_dynamic_settings(request: AdminRequest) -> object:
    """Return the settings that can change at run time: policies of topics without their own."""
    del request
    return sorted(FIELDS)


def get_dynamic_settings(request: AdminRequest) -> object:
    """Return the settings that were changed at run time."""
    return request.broker.namespaces.default_texts


async def set_dynamic_setting(request: AdminRequest) -> None:
    """Change the default of a policy, at once and for all protocols."""
    known, name, value = request.broker.namespaces, request.params["name"], request.params["value"]
    await request.commit_change(lambda: known.plan_set_default(name, value))


async def delete_dynamic_setting(request: AdminRequest) -> None:
    """Restore the default of a policy."""
    known, name = request.broker.namespaces, request.params["name"]
    await request.commit_change(lambda: known.plan_set_default(name, None))


def get_metadata_store(request: AdminRequest) -> object:
    """Reject: there is no metadata store that clients could connect to."""
    del request
    raise HttpError(404, "there is no metadata store beside this node")


def get_runtime_configuration(request: AdminRequest) -> object:
    """Return the settings at the start, by Pulsar's names."""
    settings = request.gateway.settings
    return {
        "clusterName": settings.cluster,
        "maxMessageSize": str(settings.message_bytes_max),
        "keepAliveIntervalSeconds": str(int(settings.keep_alive_s)),
        "allowAutoTopicCreation": str(settings.auto_create_topics).lower(),
        **{name: format_default(request.broker.namespaces.defaults, name) for name in FIELDS},
    }


# -- lookups, for clients whose service URL is http://


def look_up_topic(request: AdminRequest) -> object:
    """Return the addresses of the Pulsar listeners of the topic's owner.

    The topic need not exist, its namespace must.
    """
    _check_lookup(request)
    cluster = request.broker.cluster
    name = request.name
    owner = find_owner(cluster, name)
    if not name.persistent:
        owner = request.broker.non_persistent.owner(name.topic)
    listener = request.http.query_params.get("listenerName", "")
    listener = listener or request.http.headers.get("x-pulsar-listenername", "")
    try:
        url, tls_url = (each or "" for each in request.gateway.service_urls(owner, listener))
    except NotServed as error:
        raise HttpError(404, str(error)) from error
    http_url, https_url = web_urls(request)
    if owner != cluster.node_id:
        http_url, https_url = other_web_urls(cluster.ownership.listeners(owner))
    return {
        "brokerUrl": url,
        "brokerUrlTls": tls_url,
        "httpUrl": http_url,
        "httpUrlTls": https_url,
        "nativeUrl": url or tls_url,
        "brokerUrlSsl": tls_url,
    }


def look_up_bundle(request: AdminRequest) -> object:
    """Return the bundle of a topic: a namespace has one."""
    _check_lookup(request)
    return Reply(200, BUNDLE.encode(), "text/plain")


def _check_lookup(request: AdminRequest) -> None:
    name = request.name
    if is_coordinator_topic(request.broker.cluster, name):
        return
    if not request.broker.namespaces.exists(name.topic.namespace_name):
        raise HttpError(404, "Namespace not found")


def lookup_routes(prefix: str) -> list[AdminRoute]:
    """Return the routes of lookups."""
    kind, describe = ResourceKind.TOPIC, Operation.DESCRIBE
    return [
        AdminRoute(
            "GET",
            f"{prefix}/{word}/{{domain}}/{place}/{{topic}}{end}",
            handler,
            kind,
            describe,
            finds_coordinators=True,
        )
        for word, place in LOOKUP_PLACES
        for end, handler in (("", look_up_topic), ("/bundle", look_up_bundle))
    ]


CLUSTER, NAMESPACE = ResourceKind.CLUSTER, ResourceKind.NAMESPACE
DESCRIBE, ALTER = Operation.DESCRIBE, Operation.ALTER

ROUTES = (
    AdminRoute("GET", "/clusters", list_clusters, CLUSTER, DESCRIBE, is_public=True),
    AdminRoute("GET", "/clusters/{name}", get_cluster, CLUSTER, DESCRIBE),
    AdminRoute("PUT", "/clusters/{name}", create_cluster, CLUSTER, ALTER),
    AdminRoute("POST DELETE", "/clusters/{name}", change_cluster, CLUSTER, ALTER),
    AdminRoute("GET", "/tenants", list_tenants, CLUSTER, DESCRIBE),
    AdminRoute("GET", "/tenants/{tenant}", get_tenant, NAMESPACE, DESCRIBE),
    AdminRoute("PUT", "/tenants/{tenant}", create_tenant, CLUSTER, ALTER),
    AdminRoute("POST", "/tenants/{tenant}", update_tenant, CLUSTER, ALTER),
    AdminRoute("DELETE", "/tenants/{tenant}", delete_tenant, CLUSTER, ALTER),
    AdminRoute("GET", "/brokers/health", check_health, CLUSTER, DESCRIBE),
    AdminRoute("GET", "/brokers/ready", check_health, CLUSTER, DESCRIBE, is_public=True),
    AdminRoute("GET", "/brokers/version", get_version, CLUSTER, DESCRIBE, is_public=True),
    AdminRoute("GET", "/brokers/leaderBroker", get_leader, CLUSTER, DESCRIBE),
    AdminRoute("GET", "/brokers/configuration", list_dynamic_settings, CLUSTER,
        Operation.DESCRIBE_SETTINGS),
    AdminRoute("GET", "/brokers/configuration/values", get_dynamic_settings, CLUSTER,
        Operation.DESCRIBE_SETTINGS),
    AdminRoute("POST", "/brokers/configuration/{name}/{value:path}", set_dynamic_setting, CLUSTER,
        Operation.ALTER_SETTINGS),
    AdminRoute("DELETE", "/brokers/configuration/{name}", delete_dynamic_setting, CLUSTER,
        Operation.ALTER_SETTINGS),
    AdminRoute("GET", "/brokers/configuration/runtime", get_runtime_configuration, CLUSTER,
        Operation.DESCRIBE_SETTINGS),
    AdminRoute("GET", "/brokers/internal-configuration", get_metadata_store, CLUSTER, DESCRIBE),
    AdminRoute("GET", "/brokers/{name}/{broker}/ownedNamespaces", get_owned_namespaces, CLUSTER,
        DESCRIBE),
    AdminRoute("GET", "/brokers", list_brokers, CLUSTER, DESCRIBE),
    AdminRoute("GET", "/brokers/{name}", list_brokers, CLUSTER, DESCRIBE),
)  # fmt: skip
