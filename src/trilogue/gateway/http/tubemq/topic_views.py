"""Topics as TubeMQ's web API shows them, in the shapes of a real master.

Configured and running are the same here: an existing topic is served.
"""

from __future__ import annotations

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.names import format_tubemq
from trilogue.broker.settings.topic_settings import (
    FOREVER_MS,
    TUBEMQ_DELETED,
    TUBEMQ_PUBLISH,
    TUBEMQ_SUBSCRIBE,
)
from trilogue.broker.topics.topic import Topic
from trilogue.broker.tubemq.group_rules import MIB, NO_TOPIC_RECORD, ConsumeRecord
from trilogue.gateway.http.tubemq.topics import FILE_BOUNDS, read_stamp
from trilogue.gateway.http.tubemq.web_api_request import (
    UNDEFINED,
    Answer,
    WebApiMethod,
    WebApiRequest,
    broker_response,
    describe_stamp,
    format_date,
    master_response,
)
from trilogue.gateway.tubemq.broker_map import BROKER_ID

NORMAL, SOFT_DELETED = 0, 1
CONDITION_OFF, CONDITION_ON = 0, 2


def manage_status(request: WebApiRequest) -> str:
    """Return a real master's name for the state of the broker."""
    record = request.rules.broker
    if record.publishes:
        return "online" if record.subscribes else "only-write"
    return "only-read" if record.subscribes else "offline"


def message_mib(request: WebApiRequest, topic: Topic) -> int:
    """Return the largest message of a topic in MiB, at least one."""
    return max(1, request.rules.message_size_max(topic) // MIB)


def format_retention(retention_ms: int) -> str:
    """Return a retention as a deletePolicy; an infinite one as the longest policy."""
    if retention_ms == FOREVER_MS:
        return "delete,999999999h"
    if retention_ms % 3_600_000 == 0:
        return f"delete,{retention_ms // 3_600_000}h"
    return f"delete,{max(1, retention_ms // 1_000)}s"


def describe_storage(retention_ms: int) -> Answer:
    """Return how messages are stored, in the words of real servers."""
    return {
        "deletePolicy": format_retention(retention_ms),
        "dataStoreType": UNDEFINED,
        "dataPath": "",
    }


def describe_configuration(request: WebApiRequest, topic: Topic) -> Answer:
    """Return the configuration of a topic on this broker."""
    host, port = request.gateway.broker_address()
    settings = topic.settings
    return {
        "topicName": format_tubemq(topic.name),
        "brokerId": BROKER_ID,
        "topicNameId": UNDEFINED,
        "brokerIp": host,
        "brokerPort": port,
        "topicStatusId": SOFT_DELETED if TUBEMQ_DELETED in settings else NORMAL,
        "numTopicStores": 1,
        "numPartitions": len(topic.partitions),
        **FILE_BOUNDS,
        "acceptPublish": settings.get(TUBEMQ_PUBLISH) != "false",
        "acceptSubscribe": settings.get(TUBEMQ_SUBSCRIBE) != "false",
        **describe_storage(topic.partitions[0].settings.retention_ms),
        **describe_stamp(read_stamp(settings)),
    }


def _describe_running(request: WebApiRequest, topic: Topic) -> Answer:
    return {
        "acceptPublish": request.rules.accepts_publish(topic),
        "acceptSubscribe": request.rules.accepts_subscribe(topic),
        "numPartitions": len(topic.partitions),
        "numTopicStores": 1,
        "brokerManageStatus": manage_status(request),
    }


def _describe_deployment(request: WebApiRequest, topic: Topic) -> list[Answer]:
    return [
        {**describe_configuration(request, topic), "runInfo": _describe_running(request, topic)}
    ]


def _describe_totals(request: WebApiRequest, topic: Topic) -> Answer:
    running = request.rules.is_deployed(topic)
    return {
        "infoCount": 1,
        "totalCfgNumPart": len(topic.partitions),
        "isSrvAcceptPublish": request.rules.accepts_publish(topic),
        "isSrvAcceptSubscribe": request.rules.accepts_subscribe(topic),
        "totalRunNumPartCount": len(topic.partitions) if running else 0,
    }


def _find_topics(request: WebApiRequest) -> list[Topic]:
    """Return the topics of this broker that the request names, in the state that it names."""
    if not request.names_this_broker:
        return []
    found = request.found_topics()
    if request.has("topicStatusId"):
        status = request.number("topicStatusId", low=0, high=2)
        deleted = status != NORMAL
        found = [each for each in found if (TUBEMQ_DELETED in each.settings) == deleted]
    return [topic for topic in found if request.can_see(ResourceKind.TOPIC, topic.name)]


def query_topics(request: WebApiRequest) -> Answer:
    """Return all data of topics, in the older shape."""
    return master_response(
        [
            {
                "topicName": format_tubemq(topic.name),
                "maxMsgSizeInMB": message_mib(request, topic),
                "topicInfo": _describe_deployment(request, topic),
                **_describe_totals(request, topic),
                "authData": _describe_auth_data(request, topic),
            }
            for topic in _find_topics(request)
        ]
    )


def query_deployments(request: WebApiRequest) -> Answer:
    """Return all data of topics, in the newer shape."""
    with_groups = request.flag("withGroupAuthInfo", default=False)
    data = []
    for topic in _find_topics(request):
        fields = {
            **describe_control(request, topic),
            "deployInfo": _describe_deployment(request, topic),
            **_describe_totals(request, topic),
        }
        if with_groups:
            groups = [
                describe_consume(topic, group, record)
                for group, record in _records_of(request, topic)
            ]
            fields |= {"groupAuthInfo": groups, "groupAuthCount": len(groups)}
        data.append(fields)
    return master_response(data)


def query_configurations(request: WebApiRequest) -> Answer:
    """Return the configurations of topics."""
    return master_response(
        [describe_configuration(request, topic) for topic in _find_topics(request)]
    )


def query_cluster_view(request: WebApiRequest) -> Answer:
    """Return the counts of topics."""
    return master_response(
        [
            {
                "topicName": format_tubemq(topic.name),
                "totalCfgBrokerCnt": 1,
                "totalCfgNumStore": 1,
                "totalRunNumStore": 1,
                "totalCfgNumPart": len(topic.partitions),
                "totalRunNumPartCount": len(topic.partitions),
                "isSrvAcceptPublish": request.rules.accepts_publish(topic),
                "isSrvAcceptSubscribe": request.rules.accepts_subscribe(topic),
                "enableAuthControl": _is_named_only(request, topic),
            }
            for topic in _find_topics(request)
        ]
    )


def query_counts_by_topic(request: WebApiRequest) -> Answer:
    """Return the counts of topics in another shape."""
    data = []
    for topic in _find_topics(request):
        count = len(topic.partitions)
        publishes = request.rules.accepts_publish(topic)
        subscribes = request.rules.accepts_subscribe(topic)
        data.append(
            {
                "topicName": format_tubemq(topic.name),
                "brokerTotalCfgCnt": 1,
                "brokerTotalRunCnt": 1,
                "storeTotalCfgCnt": 1,
                "storeTotalRunCnt": 1,
                "partTotalCfgCnt": count,
                "partTotalRunCnt": count,
                "brokerAccPubTotalCnt": int(publishes),
                "brokerAccSubTotalCnt": int(subscribes),
                "storeAccPubTotalCnt": int(publishes),
                "storeAccSubTotalCnt": int(subscribes),
                "partAccPubTotalCnt": count * publishes,
                "partAccSubTotalCnt": count * subscribes,
                "topicSrvAccPubStatus": publishes,
                "topicSrvAccSubStatus": subscribes,
                "enableAuthControl": _is_named_only(request, topic),
            }
        )
    return master_response(data)


def query_counts_by_broker(request: WebApiRequest) -> Answer:
    """Return the counts of the broker."""
    if not request.names_this_broker:
        return master_response([])
    topics = _find_topics(request)
    host, port = request.gateway.broker_address()
    publish = [len(each.partitions) for each in topics if request.rules.accepts_publish(each)]
    subscribe = [len(each.partitions) for each in topics if request.rules.accepts_subscribe(each)]
    data: Answer = {
        "brokerId": BROKER_ID,
        "brokerIp": host,
        "brokerPort": port,
        "manageStatus": manage_status(request),
        "acceptPublish": request.rules.broker.publishes,
        "acceptSubscribe": request.rules.broker.subscribes,
        "nodeRunInfo": "running",
        "topicTotalCfgCnt": len(topics),
        "storeTotalCfgCnt": len(topics),
        "partTotalCfgCnt": sum(len(each.partitions) for each in topics),
        "topicAccPubTotalCnt": len(publish),
        "topicAccSubTotalCnt": len(subscribe),
        "storeAccPubTotalCnt": len(publish),
        "storeAccSubTotalCnt": len(subscribe),
        "partAccPubTotalCnt": sum(publish),
        "partAccSubTotalCnt": sum(subscribe),
    }
    return master_response([data])


def query_topic_names(request: WebApiRequest) -> Answer:
    """Return the topics of the broker."""
    if not request.names_this_broker:
        return master_response([])
    found = [format_tubemq(topic.name) for topic in _find_topics(request)]
    return master_response([{"brokerId": BROKER_ID, "topicName": found, "topicCount": len(found)}])


def query_brokers_of_topics(request: WebApiRequest) -> Answer:
    """Return the brokers of topics."""
    with_ip = request.flag("withIp", default=False)
    host, _ = request.gateway.broker_address()
    broker = {"brokerId": BROKER_ID, "brokerIp": host} if with_ip else BROKER_ID
    return master_response(
        [
            {"topicName": format_tubemq(topic.name), "brokerInfo": [broker], "brokerCnt": 1}
            for topic in _find_topics(request)
        ]
    )


# -- who may read them


def describe_control(request: WebApiRequest, topic: Topic) -> Answer:
    """Return the settings of a topic as a whole."""
    record = request.rules.topics.get(str(topic.name), NO_TOPIC_RECORD)
    stamp = record.stamp if record.stamp.made_ms else read_stamp(topic.settings)
    return {
        "topicName": format_tubemq(topic.name),
        "topicNameId": UNDEFINED,
        "enableAuthControl": record.named_groups_only,
        "maxMsgSizeInMB": message_mib(request, topic),
        **describe_stamp(stamp),
    }


def query_controls(request: WebApiRequest) -> Answer:
    """Return the settings of topics as a whole."""
    return master_response([describe_control(request, topic) for topic in _find_topics(request)])


def query_authorization(request: WebApiRequest) -> Answer:
    """Return the groups that may read topics, in the older shape."""
    return master_response(
        [_describe_authorization(request, topic) for topic in _find_topics(request)]
    )


def _describe_authorization(request: WebApiRequest, topic: Topic) -> Answer:
    record = request.rules.topics.get(str(topic.name), NO_TOPIC_RECORD)
    stamp = record.stamp if record.stamp.made_ms else read_stamp(topic.settings)
    name = {"topicName": format_tubemq(topic.name)}
    records = _records_of(request, topic)
    return {
        **name,
        "isEnable": record.named_groups_only,
        **_only_dates(describe_stamp(stamp)),
        "authConsumeGroup": [
            {**name, "groupName": group, **_only_dates(describe_stamp(each.stamp))}
            for group, each in records
        ],
        "groupCount": len(records),
        "authFilterCondSet": [
            {
                **name,
                "groupName": group,
                **describe_filters(each),
                **_only_dates(describe_stamp(each.stamp)),
            }
            for group, each in records
        ],
        "filterCount": len(records),
    }


def _describe_auth_data(request: WebApiRequest, topic: Topic) -> Answer:
    record = request.rules.topics.get(str(topic.name))
    records = _records_of(request, topic)
    if record is None and not records:
        return {}
    stamp = NO_TOPIC_RECORD.stamp if record is None else record.stamp
    return {
        "enableAuthControl": record is not None and record.named_groups_only,
        "createUser": stamp.made_by,
        "createDate": format_date(stamp.made_ms),
        "authConsumeGroup": [
            {"groupName": group, **_only_dates(describe_stamp(each.stamp))}
            for group, each in records
        ],
        "groupCount": len(records),
        "authFilterCondSet": [
            {
                "groupName": group,
                **describe_filters(each),
                **_only_dates(describe_stamp(each.stamp)),
            }
            for group, each in records
        ],
        "filterCount": len(records),
    }


def describe_filters(record: ConsumeRecord) -> Answer:
    """Return filters as older methods show them: with a comma around each."""
    conditions = (
        f",{','.join(record.filters)}," if record.filters else ",," if record.filtered else ""
    )
    return {
        "condStatus": CONDITION_ON if record.filtered else CONDITION_OFF,
        "filterConds": conditions,
    }


def describe_consume(topic: Topic, group: str, record: ConsumeRecord) -> Answer:
    """Return the record of a group and a topic, as newer methods show it."""
    return describe_consume_of(format_tubemq(topic.name), group, record)


def describe_consume_of(topic: str, group: str, record: ConsumeRecord) -> Answer:
    """Return the same for a topic that may not exist."""
    return {
        "topicName": topic,
        "groupName": group,
        "consumeEnable": record.may,
        "disableCsmRsn": record.reason,
        "filterEnable": record.filtered,
        "filterConds": describe_filters(record)["filterConds"],
        **describe_stamp(record.stamp),
    }


def _only_dates(fields: Answer) -> Answer:
    return {key: value for key, value in fields.items() if key not in {"dataVersionId", "serialId"}}


def _records_of(request: WebApiRequest, topic: Topic) -> list[tuple[str, ConsumeRecord]]:
    return [(group, record) for group, record in request.rules.of_topic(str(topic.name))]


def _is_named_only(request: WebApiRequest, topic: Topic) -> bool:
    return request.rules.topics.get(str(topic.name), NO_TOPIC_RECORD).named_groups_only


# -- what the broker has of them


def query_stores(request: WebApiRequest) -> Answer:
    """Return the first and last offsets and the sizes of partitions."""
    data = []
    for index, topic in enumerate(_find_topics(request), 1):
        parts = [
            {
                "partitionId": number,
                "minOffset": part.log.start_offset,
                "maxOffset": part.log.high_watermark,
                "sizeInBytes": part.log.size_bytes,
            }
            for number, part in enumerate(topic.partitions)
        ]
        store = {"storeId": 0, "numPartition": len(parts), "partitionInfo": parts}
        data.append({"index": index, "topicName": format_tubemq(topic.name), "storeInfo": [store]})
    return broker_response(data)


def query_publish_info(request: WebApiRequest) -> Answer:
    """Return the first and last offsets of partitions, in the shape for producers."""
    data = []
    for topic in _find_topics(request):
        parts = [
            {
                "partitionId": number,
                "offsetMin": part.log.start_offset,
                "offsetMax": part.log.high_watermark,
            }
            for number, part in enumerate(topic.partitions)
        ]
        named = format_tubemq(topic.name)
        data.append({"topicName": named, "offsetInfo": parts, "itemCount": len(parts)})
    return broker_response(data, "dataCount")


TOPIC, DESCRIBE = ResourceKind.TOPIC, Operation.DESCRIBE
METHODS = (
    WebApiMethod("admin_query_topic_info", query_topics, TOPIC, DESCRIBE),
    WebApiMethod("admin_query_topic_deploy_info", query_deployments, TOPIC, DESCRIBE),
    WebApiMethod("admin_query_topic_deploy_configure", query_configurations, TOPIC, DESCRIBE),
    WebApiMethod("admin_query_cluster_topic_view", query_cluster_view, TOPIC, DESCRIBE),
    WebApiMethod("admin_query_topic_broker_config_info", query_counts_by_topic, TOPIC, DESCRIBE),
    WebApiMethod("admin_query_broker_topic_config_info", query_counts_by_broker, TOPIC, DESCRIBE),
    WebApiMethod("admin_query_deployed_topics", query_topic_names, TOPIC, DESCRIBE),
    WebApiMethod("admin_query_deployed_broker_ids", query_brokers_of_topics, TOPIC, DESCRIBE),
    WebApiMethod("admin_query_topic_control_info", query_controls, TOPIC, DESCRIBE),
    WebApiMethod("admin_query_topic_authorize_control", query_authorization, TOPIC, DESCRIBE),
    WebApiMethod(
        "admin_query_broker_all_store_info", query_stores, TOPIC, DESCRIBE, of_broker=True
    ),
    WebApiMethod("admin_query_pubinfo", query_publish_info, TOPIC, DESCRIBE, of_broker=True),
)
