"""What all replies of version 3 have: the cluster of the path, links, and lists."""

from __future__ import annotations

from typing import Any, Final

from trilogue.client.kafka.admin.model import ClusterDescription
from trilogue.gateway.http.kafka_rest.rest_errors import RestError
from trilogue.gateway.http.kafka_rest.rest_request import RestReply, RestRequest

MEDIA_TYPE: Final = "application/json"
ROOT: Final = "/v3/clusters"


async def check_cluster(request: RestRequest) -> ClusterDescription:
    """Return the cluster; raises RestError where the path names another."""
    found = await request.client.admin.describe_cluster()
    if request.params["cluster"] != found.cluster_id:
        raise RestError(404, f"Cluster {request.params['cluster'][:100]} cannot be found.")
    return found


def topic_path(request: RestRequest) -> str:
    """Return the path of the topic of a request."""
    return f"{ROOT}/{request.params['cluster']}/topics/{request.params['topic']}"


def make_link(request: RestRequest, path: str) -> str:
    """Return the address of a path."""
    base = request.http.url
    prefix = base.path.partition(ROOT)[0]
    return f"{base.scheme}://{base.netloc}{prefix}{path}"


def make_head(request: RestRequest, kind: str, path: str) -> dict[str, Any]:
    """Return the first fields of a resource."""
    cluster = request.params["cluster"]
    name = f"crn:///kafka={cluster}"
    return {"kind": kind, "metadata": {"self": make_link(request, path), "resource_name": name}}


def make_list(request: RestRequest, kind: str, data: list[dict[str, Any]], path: str) -> RestReply:
    """Return the reply with a list of resources."""
    metadata = {"self": make_link(request, path), "next": None}
    return RestReply({"kind": f"{kind}List", "metadata": metadata, "data": data}, MEDIA_TYPE)
