"""Version 3: the cluster, its topics, settings and groups, and records that are produced."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from trilogue.client.errors import ClientError
from trilogue.client.kafka.admin.model import (
    GroupDescription,
    NewTopic,
    Resource,
    ResourceType,
    Setting,
    TopicDescription,
)
from trilogue.client.kafka.errors import KafkaError
from trilogue.client.kafka.model import granted
from trilogue.gateway.http.kafka_rest.formats import BINARY, JSON, encode
from trilogue.gateway.http.kafka_rest.rest_request import (
    INVALID_REQUEST,
    PARTITION_NOT_FOUND,
    RestError,
    RestReply,
    RestRequest,
    RestRoute,
    error_of,
)
from trilogue.gateway.http.kafka_rest.topics import RECORDS_MAX, describe_partitions

MEDIA_TYPE: Final = "application/json"
ROOT: Final = "/v3/clusters"
STRING: Final = "string"
HEADERS_MAX: Final = 100


class TopicBody(msgspec.Struct):
    """A topic as it is created."""

    topic_name: str
    partitions_count: int = -1
    replication_factor: int = -1
    configs: list[dict[str, Any]] = []


class RecordData(msgspec.Struct):
    """A key or a value."""

    type: str = "JSON"
    data: Any = None


class RecordHeader(msgspec.Struct):
    """A header, its value in base64."""

    name: str
    value: str | None = None


class RecordBody(msgspec.Struct):
    """A message of version 3."""

    partition_id: int | None = None
    headers: list[RecordHeader] = []
    key: RecordData | None = None
    value: RecordData | None = None


def routes() -> list[RestRoute]:
    """Return the routes of version 3."""
    cluster, topic = f"{ROOT}/{{cluster}}", f"{ROOT}/{{cluster}}/topics/{{topic}}"
    group = f"{cluster}/consumer-groups/{{group}}"
    return [
        RestRoute("GET", ROOT, list_clusters),
        RestRoute("GET", cluster, get_cluster),
        RestRoute("GET", f"{cluster}/brokers", list_brokers),
        RestRoute("GET", f"{cluster}/topics", list_topics),
        RestRoute("POST", f"{cluster}/topics", create_topic),
        RestRoute("GET", topic, get_topic),
        RestRoute("DELETE", topic, delete_topic),
        RestRoute("GET", f"{topic}/configs", list_configs),
        RestRoute("GET", f"{topic}/configs/{{name}}", get_config),
        RestRoute("GET", f"{topic}/partitions", list_partitions),
        RestRoute("GET", f"{topic}/partitions/{{partition}}", get_partition),
        RestRoute("POST", f"{topic}/records", produce),
        RestRoute("GET", f"{cluster}/consumer-groups", list_groups),
        RestRoute("GET", group, get_group),
        RestRoute("GET", f"{group}/consumers", list_consumers),
    ]


# -- the cluster


async def list_clusters(request: RestRequest) -> RestReply:
    """Return the one cluster."""
    found = await request.client.admin.describe_cluster()
    request.params["cluster"] = found.cluster_id or ""
    return _list(request, "KafkaCluster", [await _describe_cluster(request)], ROOT)


async def get_cluster(request: RestRequest) -> RestReply:
    """Return the cluster."""
    return RestReply(await _describe_cluster(request), MEDIA_TYPE)


async def _describe_cluster(request: RestRequest) -> dict[str, Any]:
    found = await _check_cluster(request)
    path = f"{ROOT}/{found.cluster_id}"
    related = ("brokers", "topics", "consumer-groups")
    return {
        **_head(request, "KafkaCluster", path),
        "cluster_id": found.cluster_id,
        "controller": {"related": _link(request, f"{path}/brokers/{found.controller_id}")},
        **{
            name.replace("-", "_"): {"related": _link(request, f"{path}/{name}")}
            for name in related
        },
    }


async def list_brokers(request: RestRequest) -> RestReply:
    """Return the nodes."""
    found = await _check_cluster(request)
    path = f"{ROOT}/{found.cluster_id}/brokers"
    nodes = [
        {
            **_head(request, "KafkaBroker", f"{path}/{node.id}"),
            "cluster_id": found.cluster_id,
            "broker_id": node.id,
            "host": node.host,
            "port": node.port,
            "rack": node.rack,
        }
        for node in found.nodes
    ]
    return _list(request, "KafkaBroker", nodes, path)


async def _check_cluster(request: RestRequest) -> Any:
    """Return the cluster; raises RestError where the path names another."""
    found = await request.client.admin.describe_cluster()
    if request.params["cluster"] != found.cluster_id:
        raise RestError(404, f"Cluster {request.params['cluster'][:100]} cannot be found.")
    return found


# -- topics


async def list_topics(request: RestRequest) -> RestReply:
    """Return the topics that the client may describe."""
    found = await _check_cluster(request)
    admin = request.client.admin
    names = [each.name for each in await admin.list_topics()]
    topics = granted(await admin.describe_topics(names)) if names else {}
    listed = [_describe_topic(request, topics[name]) for name in sorted(topics)]
    return _list(request, "KafkaTopic", listed, f"{ROOT}/{found.cluster_id}/topics")


async def create_topic(request: RestRequest) -> RestReply:
    """Create a topic, and return it."""
    await _check_cluster(request)
    body = request.json(TopicBody)
    settings = {str(each.get("name")): str(each.get("value")) for each in body.configs}
    new = NewTopic(body.topic_name, body.partitions_count, body.replication_factor, settings)
    granted(await request.client.admin.create_topics([new]))
    request.params["topic"] = body.topic_name
    return RestReply(_describe_topic(request, await _find_topic(request)), MEDIA_TYPE, 201)


async def get_topic(request: RestRequest) -> RestReply:
    """Return a topic."""
    await _check_cluster(request)
    return RestReply(_describe_topic(request, await _find_topic(request)), MEDIA_TYPE)


async def delete_topic(request: RestRequest) -> None:
    """Delete a topic."""
    await _check_cluster(request)
    granted(await request.client.admin.delete_topics([request.params["topic"]]))


async def _find_topic(request: RestRequest) -> TopicDescription:
    name = request.params["topic"]
    return granted(await request.client.admin.describe_topics([name]))[name]


def _describe_topic(request: RestRequest, topic: TopicDescription) -> dict[str, Any]:
    cluster = request.params["cluster"]
    path = f"{ROOT}/{cluster}/topics/{topic.name}"
    replicas = len(topic.partitions[0].replicas) if topic.partitions else 0
    return {
        **_head(request, "KafkaTopic", path),
        "cluster_id": cluster,
        "topic_name": topic.name,
        "is_internal": topic.is_internal,
        "replication_factor": replicas,
        "partitions_count": len(topic.partitions),
        "partitions": {"related": _link(request, f"{path}/partitions")},
        "configs": {"related": _link(request, f"{path}/configs")},
    }


async def list_configs(request: RestRequest) -> RestReply:
    """Return the settings of a topic."""
    settings = await _find_settings(request)
    path = f"{_topic_path(request)}/configs"
    listed = [_describe_setting(request, each) for each in settings.values()]
    return _list(request, "KafkaTopicConfig", listed, path)


async def get_config(request: RestRequest) -> RestReply:
    """Return one setting of a topic."""
    found = (await _find_settings(request)).get(request.params["name"])
    if found is None:
        raise RestError(404, f"Config {request.params['name'][:100]} cannot be found.")
    return RestReply(_describe_setting(request, found), MEDIA_TYPE)


async def _find_settings(request: RestRequest) -> dict[str, Setting]:
    await _check_cluster(request)
    resource = Resource(ResourceType.TOPIC, request.params["topic"])
    return granted(await request.client.admin.describe_configs([resource]))[resource]


def _describe_setting(request: RestRequest, setting: Setting) -> dict[str, Any]:
    return {
        **_head(request, "KafkaTopicConfig", f"{_topic_path(request)}/configs/{setting.name}"),
        "cluster_id": request.params["cluster"],
        "topic_name": request.params["topic"],
        "name": setting.name,
        "value": setting.value,
        "is_default": setting.is_default,
        "is_read_only": setting.read_only,
        "is_sensitive": setting.sensitive,
        "source": f"{setting.source.name}_CONFIG",
    }


async def list_partitions(request: RestRequest) -> RestReply:
    """Return the partitions of a topic."""
    await _check_cluster(request)
    found = [_describe_partition(request, each) for each in await describe_partitions(request)]
    return _list(request, "KafkaPartition", found, f"{_topic_path(request)}/partitions")


async def get_partition(request: RestRequest) -> RestReply:
    """Return one partition."""
    await _check_cluster(request)
    number = request.number("partition")
    for each in await describe_partitions(request):
        if each.number == number:
            return RestReply(_describe_partition(request, each), MEDIA_TYPE)
    raise RestError(PARTITION_NOT_FOUND, "Partition not found.")


def _describe_partition(request: RestRequest, partition: Any) -> dict[str, Any]:
    cluster, path = request.params["cluster"], f"{_topic_path(request)}/partitions"
    leader = f"{ROOT}/{cluster}/brokers/{partition.leader}"
    return {
        **_head(request, "KafkaPartition", f"{path}/{partition.number}"),
        "cluster_id": cluster,
        "topic_name": request.params["topic"],
        "partition_id": partition.number,
        "leader": {"related": _link(request, leader)},
    }


# -- groups


async def list_groups(request: RestRequest) -> RestReply:
    """Return the groups that the client may describe."""
    found = await _check_cluster(request)
    admin = request.client.admin
    names = [each.name for each in await admin.list_groups(types=("classic", "consumer"))]
    groups = granted(await admin.describe_groups(names)) if names else {}
    listed = [_describe_group(request, groups[name]) for name in sorted(groups)]
    path = f"{ROOT}/{found.cluster_id}/consumer-groups"
    return _list(request, "KafkaConsumerGroup", listed, path)


async def get_group(request: RestRequest) -> RestReply:
    """Return one group."""
    return RestReply(_describe_group(request, await _find_group(request)), MEDIA_TYPE)


async def list_consumers(request: RestRequest) -> RestReply:
    """Return the members of a group."""
    group = await _find_group(request)
    path = f"{_group_path(request, group.name)}/consumers"
    members = [
        {
            **_head(request, "KafkaConsumer", f"{path}/{member.member_id}"),
            "cluster_id": request.params["cluster"],
            "consumer_group_id": group.name,
            "consumer_id": member.member_id,
            "instance_id": member.instance_id,
            "client_id": member.client_id,
        }
        for member in group.members
    ]
    return _list(request, "KafkaConsumer", members, path)


async def _find_group(request: RestRequest) -> GroupDescription:
    await _check_cluster(request)
    name = request.params["group"]
    try:
        found = granted(await request.client.admin.describe_groups([name]))[name]
    except KafkaError as problem:
        if problem.error.name == "GROUP_ID_NOT_FOUND":
            raise RestError(404, f"Consumer Group {name[:100]} could not be found.") from problem
        raise
    if found.state == "Dead":
        raise RestError(404, f"Consumer Group {name[:100]} could not be found.")
    return found


def _describe_group(request: RestRequest, group: GroupDescription) -> dict[str, Any]:
    path = _group_path(request, group.name)
    return {
        **_head(request, "KafkaConsumerGroup", path),
        "cluster_id": request.params["cluster"],
        "consumer_group_id": group.name,
        "is_simple": not group.protocol_type,
        "partition_assignor": group.assignor,
        "state": _state_name(group.state),
        "consumers": {"related": _link(request, f"{path}/consumers")},
    }


def _state_name(state: str) -> str:
    """Return `PreparingRebalance` as PREPARING_REBALANCE."""
    parts = "".join(f"_{each}" if each.isupper() else each for each in state)
    return parts.strip("_").upper()


def _group_path(request: RestRequest, name: str) -> str:
    return f"{ROOT}/{request.params['cluster']}/consumer-groups/{name}"


# -- produced


async def produce(request: RestRequest) -> RestReply:
    """Store records, one JSON object after the other, and return where each is."""
    cluster = await _check_cluster(request)
    answers = [await _produce_one(request, cluster.cluster_id, each) for each in _split(request)]
    content = b"\r\n".join(msgspec.json.encode(each) for each in answers)
    status = answers[0]["error_code"] if len(answers) == 1 else 200
    return RestReply(msgspec.Raw(content), MEDIA_TYPE, int(str(status)[:3]))


def _split(request: RestRequest) -> Iterator[RecordBody]:
    """Iterate over the objects of a body; raises RestError 422."""
    try:
        text, position, count = request.body.decode(), 0, 0
        decoder = json.JSONDecoder()
        while text[position:].strip() or not count:
            position += len(text[position:]) - len(text[position:].lstrip())
            found, position = decoder.raw_decode(text, position)
            count += 1
            if count > RECORDS_MAX:
                raise RestError(INVALID_REQUEST, f"a request has at most {RECORDS_MAX} records")
            yield msgspec.convert(found, RecordBody)
    except (ValueError, msgspec.ValidationError, RecursionError) as problem:
        raise RestError(INVALID_REQUEST, f"the body cannot be read: {problem}") from problem


async def _produce_one(request: RestRequest, cluster: str, record: RecordBody) -> dict[str, Any]:
    topic = request.params["topic"]
    key, value = _encode(record.key), _encode(record.value)
    if len(record.headers) > HEADERS_MAX:
        raise RestError(INVALID_REQUEST, f"a record has at most {HEADERS_MAX} headers")
    headers = [(each.name, encode(BINARY, each.value)) for each in record.headers]
    producer = await request.client.producer()
    try:
        sent = await producer.send(
            topic, value, key=key, headers=headers, partition=record.partition_id
        )
    except ClientError as problem:
        known = error_of(problem)
        return {"error_code": known.code, "message": str(known)}
    return {
        "error_code": 200,
        "cluster_id": cluster,
        "topic_name": topic,
        "partition_id": sent.partition,
        "offset": sent.offset,
        "timestamp": None,
        "key": None if key is None else {"type": record.key and record.key.type, "size": len(key)},
        "value": None
        if value is None
        else {"type": record.value and record.value.type, "size": len(value)},
    }


def _encode(given: RecordData | None) -> bytes | None:
    """Return the bytes of a key or a value; raises RestError 422."""
    if given is None or given.data is None:
        return None
    name = given.type.lower()
    if name == STRING and isinstance(given.data, str):
        return given.data.encode()
    if name not in {BINARY, JSON}:
        raise RestError(INVALID_REQUEST, "the type of data is BINARY, JSON or STRING")
    return encode(name, given.data)


# -- what all replies have


def _topic_path(request: RestRequest) -> str:
    return f"{ROOT}/{request.params['cluster']}/topics/{request.params['topic']}"


def _link(request: RestRequest, path: str) -> str:
    base = request.http.url
    prefix = base.path.partition(ROOT)[0]
    return f"{base.scheme}://{base.netloc}{prefix}{path}"


def _head(request: RestRequest, kind: str, path: str) -> dict[str, Any]:
    cluster = request.params["cluster"]
    name = f"crn:///kafka={cluster}"
    return {"kind": kind, "metadata": {"self": _link(request, path), "resource_name": name}}


def _list(request: RestRequest, kind: str, data: list[dict[str, Any]], path: str) -> RestReply:
    metadata = {"self": _link(request, path), "next": None}
    return RestReply({"kind": f"{kind}List", "metadata": metadata, "data": data}, MEDIA_TYPE)
