"""What one broker reports of itself: broker-stats, bookies, resource groups, failure domains.

And the groups of requests that are not served, each with the reason: functions, sources and sinks,
packages, proxies, resource quotas, namespace isolation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.names import format_pulsar
from trilogue.gateway.http.pulsar.admin_request import NOTHING_SET, AdminRequest, AdminRoute
from trilogue.gateway.http.pulsar.clusters import check_cluster, web_urls
from trilogue.gateway.http.pulsar.namespaces import BUNDLE
from trilogue.gateway.http.pulsar.stats import partition_stats
from trilogue.gateway.http.pulsar.topic_clients import count_clients
from trilogue.gateway.http.request_limits import HttpError
from trilogue.gateway.steps import next_step

Handler = Callable[[AdminRequest], Any]


async def get_topic_stats(request: AdminRequest) -> object:
    """Return the statistics of this node's partitions, by namespace and bundle."""
    found: dict[str, dict[str, dict[str, dict[str, Any]]]] = {}
    for topic in list(request.broker.cluster):
        for partition in topic.local_partitions:
            index = topic.partitions.index(partition) if topic.partitioned else None
            bundle = found.setdefault(str(topic.name.namespace_name), {}).setdefault(BUNDLE, {})
            name = format_pulsar(topic.name, index)
            bundle.setdefault("persistent", {})[name] = partition_stats(request, partition)
            await next_step()
    return found


def get_load_report(request: AdminRequest) -> object:
    """Return the addresses of this node, and how many topics and clients it has."""
    gateway, cluster = request.gateway, request.broker.cluster
    http_url, https_url = web_urls(request)
    names = {str(topic.name.namespace_name) for topic in cluster}
    partitions = [each for topic in cluster for each in topic.local_partitions]
    return {
        "webServiceUrl": http_url or None,
        "webServiceUrlTls": https_url or None,
        "pulsarServiceUrl": gateway.url,
        "pulsarServiceUrlTls": gateway.tls_url,
        "persistentTopicsEnabled": True,
        "nonPersistentTopicsEnabled": True,
        "numTopics": len(partitions),
        "numBundles": len(names),
        "numClients": count_clients(gateway, partitions),
        "bundles": [f"{name}/{BUNDLE}" for name in sorted(names)],
    }


def get_broker_metrics(request: AdminRequest) -> object:
    """Return the counters of the Pulsar listener since the start."""
    gateway = request.gateway
    return [
        {
            "dimensions": {"cluster": gateway.settings.cluster, "metric": "broker"},
            "metrics": {
                "brk_connections": len(gateway.connections),
                "brk_in_messages_total": gateway.messages_in,
                "brk_in_bytes_total": gateway.bytes_in,
                "brk_out_messages_total": gateway.messages_out,
                "brk_out_bytes_total": gateway.bytes_out,
            },
        }
    ]


def list_bookies(request: AdminRequest) -> object:
    """Return no bookies."""
    del request
    return {"bookies": []}


def list_nothing(request: AdminRequest) -> object:
    """Return that there are none, by name."""
    del request
    return {}


def list_resource_groups(request: AdminRequest) -> object:
    """Return no resource groups."""
    del request
    return []


def get_peers(request: AdminRequest) -> object:
    """Return that the cluster has no peers."""
    check_cluster(request)
    return NOTHING_SET


def refuse(status: int, reason: str) -> Handler:
    """Return a handler that refuses with a reason."""

    def refuse_request(request: AdminRequest) -> object:
        del request
        raise HttpError(status, reason)

    return refuse_request


def list_namespaces_of_group(request: AdminRequest) -> object:
    """Return the namespaces of an anti-affinity group, which none is in."""
    check_cluster(request)
    return []


NO_FUNCTIONS = refuse(409, "Pulsar Function Worker is not enabled: no foreign code runs here")
NO_PACKAGES = refuse(503, "Package Management Service is not enabled in the broker.")
NO_JVM = refuse(404, "this broker has no Java virtual machine")
NO_BOOKIES = refuse(405, "there are no bookies")
NO_GROUPS = refuse(405, "there are no resource groups")
NO_QUOTAS = refuse(405, "there is no load balancer that resource quotas would be for")
NO_PROXY = refuse(404, "this is a broker, not a proxy")
ONE_NODE = refuse(412, "topics are not placed by isolation policies or failure domains")
NO_PEERS = refuse(412, "there is one cluster")
ONE_BUNDLE = refuse(412, "a namespace has one bundle, which is not split")
NO_LEDGERS = refuse(405, "schemas have no ledgers")
EVERY = "GET PUT POST DELETE"
DESCRIBE, ALTER = Operation.DESCRIBE, Operation.ALTER
CLUSTER = "/admin/v2/clusters/{name}"
NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"

# Methods, path, handler; GET of a group needs DESCRIBE on the cluster, everything else ALTER.
PATHS: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/admin/v2/broker-stats/topics", get_topic_stats),
    ("GET", "/admin/v2/broker-stats/destinations", get_topic_stats),
    ("GET", "/admin/v2/broker-stats/load-report", get_load_report),
    ("GET", "/admin/v2/broker-stats/metrics", get_broker_metrics),
    ("GET", "/admin/v2/broker-stats/mbeans", NO_JVM),
    ("GET", "/admin/v2/broker-stats/allocator-stats/{allocator}", NO_JVM),
    ("GET", "/admin/v2/broker-stats/bookieops", NO_BOOKIES),
    ("GET", "/admin/v2/bookies/all", list_bookies),
    ("GET", "/admin/v2/bookies/racks-info", list_nothing),
    (EVERY, "/admin/v2/bookies/racks-info/{bookie}", NO_BOOKIES),
    ("GET", f"{CLUSTER}/failureDomains", list_nothing),
    (EVERY, f"{CLUSTER}/failureDomains/{{domain}}", ONE_NODE),
    ("GET", f"{CLUSTER}/namespaceIsolationPolicies",
     refuse(404, "NamespaceIsolationPolicies do not exist")),
    (EVERY, f"{CLUSTER}/namespaceIsolationPolicies/{{rest:path}}", ONE_NODE),
    ("GET", f"{CLUSTER}/peers", get_peers),
    ("POST", f"{CLUSTER}/peers", NO_PEERS),
    ("GET POST", f"{CLUSTER}/migrate", NO_PEERS),
    ("GET", f"{NAMESPACE}/{{bundle}}/topicHashPositions", ONE_BUNDLE),
    ("PUT", f"{NAMESPACE}/{{bundle}}/split", ONE_BUNDLE),
    ("POST", f"{NAMESPACE}/resourcegroup/{{group}}", refuse(412, "ResourceGroup does not exist")),
    ("GET", "/admin/v2/schemas/{tenant}/{namespace}/{topic}/metadata", NO_LEDGERS),
    (EVERY, "/admin/v2/resource-quotas", NO_QUOTAS),
    (EVERY, "/admin/v2/resource-quotas/{rest:path}", NO_QUOTAS),
    ("GET", "/admin/v2/resourcegroups", list_resource_groups),
    ("GET DELETE", "/admin/v2/resourcegroups/{group}", refuse(404, "ResourceGroup does not exist")),
    ("PUT", "/admin/v2/resourcegroups/{group}", NO_GROUPS),
    (EVERY, "/admin/v2/worker/{rest:path}", NO_FUNCTIONS),
    (EVERY, "/admin/v2/worker-stats/{rest:path}", NO_FUNCTIONS),
    *(
        (EVERY, f"/admin/{version}/{group}{end}", NO_FUNCTIONS)
        for version in ("v2", "v3")
        for group in ("functions", "sources", "sinks", "source", "sink")
        for end in ("", "/{rest:path}")
    ),
    (EVERY, "/admin/v3/packages/{rest:path}", NO_PACKAGES),
    (EVERY, "/admin/v2/proxy-stats/{rest:path}", NO_PROXY),
)  # fmt: skip


def routes() -> list[AdminRoute]:
    """Return the routes of these groups."""
    kind = ResourceKind.CLUSTER
    return [
        AdminRoute(methods, path, handler, kind, DESCRIBE if methods == "GET" else ALTER)
        for methods, path, handler in PATHS
    ]
