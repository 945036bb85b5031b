"""Clusters, tenants and brokers: /admin/v2/clusters, /tenants, /brokers.

There is one cluster (the setting `pulsar.cluster`) and one broker, this node. Making the cluster
again is answered as a real broker answers; making another one is refused.
"""

from __future__ import annotations

import msgspec

from trilogue.broker.access import Operation, ResourceKind
from trilogue.broker.errors import InvalidSetting, UnknownNamespace
from trilogue.broker.names import check_tenant
from trilogue.broker.namespaces import Tenant
from trilogue.gateway.http.incoming import Problem
from trilogue.gateway.http.pulsar_asked import Asked, Reply, Row

ROLES_MAX = 1_000
VERSION = "4.0.7"  # whose administration this is


class TenantBody(msgspec.Struct, rename="camel"):
    """Who may administer a tenant, and where its topics may be."""

    admin_roles: list[str] = []
    allowed_clusters: list[str] | None = None


# -- clusters


def clusters(asked: Asked) -> object:
    """Name the only one there is."""
    return [asked.door.settings.cluster]


def cluster(asked: Asked) -> object:
    """Tell where it is reached."""
    _check_cluster(asked)
    return {
        "serviceUrl": web_url(asked),
        "brokerServiceUrl": asked.door.url,
        "brokerClientTlsEnabled": False,
        "tlsAllowInsecureConnection": False,
    }


def put_cluster(asked: Asked) -> object:
    """Refuse: the one cluster is there."""
    if asked.params["name"] == asked.door.settings.cluster:
        raise Problem(409, "Cluster already exists")
    raise Problem(412, f"there is one cluster, {asked.door.settings.cluster}")


def change_cluster(asked: Asked) -> object:
    """Refuse: where it is reached is the node's own setting."""
    _check_cluster(asked)
    raise Problem(405, "the cluster's addresses are settings of the node (advertise.pulsar)")


def _check_cluster(asked: Asked) -> None:
    if asked.params["name"] != asked.door.settings.cluster:
        raise Problem(404, "Cluster does not exist")


def web_url(asked: Asked) -> str:
    """This server as whoever asks has reached it."""
    return f"http://{asked.request.url.netloc}"


# -- tenants


def tenants(asked: Asked) -> object:
    """Name all of them."""
    return asked.broker.namespaces.tenants


def tenant(asked: Asked) -> object:
    """Tell what was said of one."""
    try:
        found = asked.broker.namespaces.tenant(asked.params["tenant"])
    except UnknownNamespace as error:
        raise Problem(404, "Tenant does not exist") from error
    here = [asked.door.settings.cluster]
    return {
        "adminRoles": list(found.admin_roles),
        "allowedClusters": list(found.allowed_clusters) or here,
    }


async def put_tenant(asked: Asked) -> None:
    """Make one."""
    name, made = check_tenant(asked.params["tenant"]), _tenant(asked)
    known = asked.broker.namespaces
    await asked.carry_out(lambda: known.plan_put_tenant(name, made, new=True))


async def post_tenant(asked: Asked) -> None:
    """Change one."""
    name, made = asked.params["tenant"], _tenant(asked)
    known = asked.broker.namespaces
    await asked.carry_out(lambda: known.plan_put_tenant(name, made, new=False))


async def delete_tenant(asked: Asked) -> None:
    """Forget one that has no namespaces; with `force` they go first, if they are empty."""
    name, known = asked.params["tenant"], asked.broker.namespaces
    if asked.flag("force"):
        for each in known.names(name):
            await asked.carry_out(lambda each=each: known.plan_delete(each))  # type: ignore[misc]
    await asked.carry_out(lambda: known.plan_delete_tenant(name))


def _tenant(asked: Asked) -> Tenant:
    body = asked.json(TenantBody) if asked.body else TenantBody()
    if not body.allowed_clusters:
        raise InvalidSetting("Clusters cannot be null")
    if body.allowed_clusters != [asked.door.settings.cluster]:
        raise InvalidSetting("Clusters do not exist")
    if len(body.admin_roles) > ROLES_MAX:
        raise InvalidSetting(f"a tenant has at most {ROLES_MAX} roles")
    return Tenant(tuple(body.admin_roles), tuple(body.allowed_clusters))


# -- brokers


def brokers(asked: Asked) -> object:
    """Name the only one, as the others of a cluster would know it."""
    return [asked.request.url.netloc]


def leader(asked: Asked) -> object:
    """The only one leads."""
    return {"serviceUrl": web_url(asked), "brokerId": asked.request.url.netloc}


def health(asked: Asked) -> object:
    """Say ok: a node whose storage has failed ends, and answers nothing any more."""
    del asked
    return Reply(200, b"ok", "text/plain")


def version(asked: Asked) -> object:
    """Say whose administration this speaks."""
    del asked
    return Reply(200, VERSION.encode(), "text/plain")


def configuration(asked: Asked) -> object:
    """Name what may be set while the broker runs: nothing."""
    del asked
    return []


def configuration_values(asked: Asked) -> object:
    """Tell what was set while the broker ran: nothing."""
    del asked
    return {}


def internal_configuration(asked: Asked) -> object:
    """Refuse: there are no stores of metadata that clients could go to."""
    del asked
    raise Problem(404, "there is no metadata store beside this node")


def runtime_configuration(asked: Asked) -> object:
    """Tell what the door was started with, by the names that Pulsar has for it."""
    settings = asked.door.settings
    return {
        "clusterName": settings.cluster,
        "maxMessageSize": str(settings.message_bytes_max),
        "keepAliveIntervalSeconds": str(int(settings.keep_alive_s)),
        "allowAutoTopicCreation": str(settings.auto_create_topics).lower(),
    }


CLUSTER, NAMESPACE = ResourceKind.CLUSTER, ResourceKind.NAMESPACE
DESCRIBE, ALTER = Operation.DESCRIBE, Operation.ALTER

ROWS = (
    Row("GET", "/clusters", clusters, CLUSTER, DESCRIBE),
    Row("GET", "/clusters/{name}", cluster, CLUSTER, DESCRIBE),
    Row("PUT", "/clusters/{name}", put_cluster, CLUSTER, ALTER),
    Row("POST DELETE", "/clusters/{name}", change_cluster, CLUSTER, ALTER),
    Row("GET", "/tenants", tenants, CLUSTER, DESCRIBE),
    Row("GET", "/tenants/{tenant}", tenant, NAMESPACE, DESCRIBE),
    Row("PUT", "/tenants/{tenant}", put_tenant, NAMESPACE, Operation.CREATE),
    Row("POST", "/tenants/{tenant}", post_tenant, NAMESPACE, ALTER),
    Row("DELETE", "/tenants/{tenant}", delete_tenant, NAMESPACE, Operation.DELETE),
    Row("GET", "/brokers/health", health, CLUSTER, DESCRIBE),
    Row("GET", "/brokers/ready", health, CLUSTER, DESCRIBE),
    Row("GET", "/brokers/version", version, CLUSTER, DESCRIBE),
    Row("GET", "/brokers/leaderBroker", leader, CLUSTER, DESCRIBE),
    Row("GET", "/brokers/configuration", configuration, CLUSTER, Operation.DESCRIBE_SETTINGS),
    Row("GET", "/brokers/configuration/values", configuration_values, CLUSTER,
        Operation.DESCRIBE_SETTINGS),
    Row("GET", "/brokers/configuration/runtime", runtime_configuration, CLUSTER,
        Operation.DESCRIBE_SETTINGS),
    Row("GET", "/brokers/internal-configuration", internal_configuration, CLUSTER, DESCRIBE),
    Row("GET", "/brokers", brokers, CLUSTER, DESCRIBE),
    Row("GET", "/brokers/{name}", brokers, CLUSTER, DESCRIBE),
)  # fmt: skip
