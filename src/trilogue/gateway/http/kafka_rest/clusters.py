"""Version 3: the cluster, its nodes, topics and partitions."""

from __future__ import annotations

from typing import Any

import msgspec

from trilogue.client.kafka.admin.model import NewTopic, PartitionDescription, TopicDescription
from trilogue.client.kafka.model import Node, granted
from trilogue.gateway.http.kafka_rest.links import (
    MEDIA_TYPE,
    ROOT,
    check_cluster,
    make_head,
    make_link,
    make_list,
    topic_path,
)
from trilogue.gateway.http.kafka_rest.rest_errors import RestError
from trilogue.gateway.http.kafka_rest.rest_request import (
    RestReply,
    RestRequest,
    RestRoute,
)
from trilogue.gateway.http.kafka_rest.topics import (
    describe_partitions,
    find_offsets,
    find_partition,
)


class TopicBody(msgspec.Struct):
    """A topic as it is created."""

    topic_name: str
    partitions_count: int = -1
    replication_factor: int = -1
    configs: list[dict[str, Any]] = []


class PartitionCountBody(msgspec.Struct):
    """How many partitions a topic has to have."""

    partitions_count: int


def routes() -> list[RestRoute]:
    """Return the routes of the cluster, its nodes, topics and partitions."""
    cluster, topic = f"{ROOT}/{{cluster}}", f"{ROOT}/{{cluster}}/topics/{{topic}}"
    partition = f"{topic}/partitions/{{partition}}"
    return [
        RestRoute("GET", ROOT, list_clusters),
        RestRoute("GET", cluster, get_cluster),
        RestRoute("GET", f"{cluster}/brokers", list_brokers),
        RestRoute("GET", f"{cluster}/brokers/{{broker}}", get_broker),
        RestRoute("GET", f"{cluster}/topics", list_topics),
        RestRoute("POST", f"{cluster}/topics", create_topic),
        RestRoute("GET", topic, get_topic),
        RestRoute("PATCH", topic, grow_topic),
        RestRoute("DELETE", topic, delete_topic),
        RestRoute("GET", f"{topic}/partitions", list_partitions),
        RestRoute("GET", partition, get_partition),
        RestRoute("GET", f"{partition}/offset", get_offsets),
    ]


# -- the cluster


async def list_clusters(request: RestRequest) -> RestReply:
    """Return the one cluster."""
    found = await request.client.admin.describe_cluster()
    request.params["cluster"] = found.cluster_id or ""
    return make_list(request, "KafkaCluster", [await _describe_cluster(request)], ROOT)


async def get_cluster(request: RestRequest) -> RestReply:
    """Return the cluster."""
    return RestReply(await _describe_cluster(request), MEDIA_TYPE)


async def _describe_cluster(request: RestRequest) -> dict[str, Any]:
    found = await check_cluster(request)
    path = f"{ROOT}/{found.cluster_id}"
    related = ("acls", "brokers", "broker-configs", "topics", "consumer-groups")
    return {
        **make_head(request, "KafkaCluster", path),
        "cluster_id": found.cluster_id,
        "controller": {"related": make_link(request, f"{path}/brokers/{found.controller_id}")},
        **{
            name.replace("-", "_"): {"related": make_link(request, f"{path}/{name}")}
            for name in related
        },
    }


async def list_brokers(request: RestRequest) -> RestReply:
    """Return the nodes."""
    found = await check_cluster(request)
    path = f"{ROOT}/{found.cluster_id}/brokers"
    nodes = [_describe_node(request, each) for each in found.nodes]
    return make_list(request, "KafkaBroker", nodes, path)


async def get_broker(request: RestRequest) -> RestReply:
    """Return one node."""
    found = await check_cluster(request)
    for each in found.nodes:
        if each.id == request.number("broker"):
            return RestReply(_describe_node(request, each), MEDIA_TYPE)
    raise RestError(404, "Broker not found.")


def _describe_node(request: RestRequest, node: Node) -> dict[str, Any]:
    path = f"{ROOT}/{request.params['cluster']}/brokers/{node.id}"
    return {
        **make_head(request, "KafkaBroker", path),
        "cluster_id": request.params["cluster"],
        "broker_id": node.id,
        "host": node.host,
        "port": node.port,
        "rack": node.rack,
        "configs": {"related": make_link(request, f"{path}/configs")},
    }


# -- topics


async def list_topics(request: RestRequest) -> RestReply:
    """Return the topics that the client may describe."""
    found = await check_cluster(request)
    admin = request.client.admin
    names = [each.name for each in await admin.list_topics()]
    topics = granted(await admin.describe_topics(names)) if names else {}
    listed = [_describe_topic(request, topics[name]) for name in sorted(topics)]
    return make_list(request, "KafkaTopic", listed, f"{ROOT}/{found.cluster_id}/topics")


async def create_topic(request: RestRequest) -> RestReply:
    """Create a topic, and return it."""
    await check_cluster(request)
    body = request.json(TopicBody)
    settings = {str(each.get("name")): str(each.get("value")) for each in body.configs}
    new = NewTopic(body.topic_name, body.partitions_count, body.replication_factor, settings)
    granted(await request.client.admin.create_topics([new]))
    request.params["topic"] = body.topic_name
    return RestReply(_describe_topic(request, await _find_topic(request)), MEDIA_TYPE, 201)


async def get_topic(request: RestRequest) -> RestReply:
    """Return a topic."""
    await check_cluster(request)
    return RestReply(_describe_topic(request, await _find_topic(request)), MEDIA_TYPE)


async def grow_topic(request: RestRequest) -> RestReply:
    """Add partitions, and return the topic."""
    await check_cluster(request)
    count = request.json(PartitionCountBody).partitions_count
    granted(await request.client.admin.create_partitions({request.params["topic"]: count}))
    return RestReply(_describe_topic(request, await _find_topic(request)), MEDIA_TYPE)


async def delete_topic(request: RestRequest) -> None:
    """Delete a topic."""
    await check_cluster(request)
    granted(await request.client.admin.delete_topics([request.params["topic"]]))


async def _find_topic(request: RestRequest) -> TopicDescription:
    name = request.params["topic"]
    return granted(await request.client.admin.describe_topics([name]))[name]


def _describe_topic(request: RestRequest, topic: TopicDescription) -> dict[str, Any]:
    cluster = request.params["cluster"]
    path = f"{ROOT}/{cluster}/topics/{topic.name}"
    replicas = len(topic.partitions[0].replicas) if topic.partitions else 0
    return {
        **make_head(request, "KafkaTopic", path),
        "cluster_id": cluster,
        "topic_name": topic.name,
        "is_internal": topic.is_internal,
        "replication_factor": replicas,
        "partitions_count": len(topic.partitions),
        "partitions": {"related": make_link(request, f"{path}/partitions")},
        "configs": {"related": make_link(request, f"{path}/configs")},
    }


async def list_partitions(request: RestRequest) -> RestReply:
    """Return the partitions of a topic."""
    await check_cluster(request)
    found = [_describe_partition(request, each) for each in await describe_partitions(request)]
    return make_list(request, "KafkaPartition", found, f"{topic_path(request)}/partitions")


async def get_partition(request: RestRequest) -> RestReply:
    """Return one partition."""
    await check_cluster(request)
    return RestReply(_describe_partition(request, await find_partition(request)), MEDIA_TYPE)


async def get_offsets(request: RestRequest) -> RestReply:
    """Return a partition with its first and its next offset."""
    await check_cluster(request)
    if request.http.query_params.get("offset_type", "earliest_and_latest") != "earliest_and_latest":
        raise RestError(400, "offset_type is earliest_and_latest")
    found = await find_partition(request)
    first, end = await find_offsets(request, found.number)
    path = f"{topic_path(request)}/partitions/{found.number}/offset"
    described = {
        **make_head(request, "KafkaPartitionWithOffsets", path),
        "cluster_id": request.params["cluster"],
        "topic_name": request.params["topic"],
        "partition_id": found.number,
        "earliest_offset": first,
        "latest_offset": end,
    }
    return RestReply(described, MEDIA_TYPE)


def _describe_partition(request: RestRequest, partition: PartitionDescription) -> dict[str, Any]:
    cluster, path = request.params["cluster"], f"{topic_path(request)}/partitions"
    leader = f"{ROOT}/{cluster}/brokers/{partition.leader}"
    return {
        **make_head(request, "KafkaPartition", f"{path}/{partition.number}"),
        "cluster_id": cluster,
        "topic_name": request.params["topic"],
        "partition_id": partition.number,
        "leader": {"related": make_link(request, leader)},
    }
