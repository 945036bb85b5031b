"""Topics as TubeMQ's administrators see them, in the shapes of a real master.

What is configured and what runs are the same here: a topic that is there is served.
"""

from __future__ import annotations

from trilogue.broker.access import Operation, ResourceKind
from trilogue.broker.group_rules import MIB, NOTHING_OF_TOPIC, ConsumeSaid
from trilogue.broker.names import spelled_tubemq
from trilogue.broker.settings import FOREVER_MS, TUBEMQ_DELETED, TUBEMQ_PUBLISH, TUBEMQ_SUBSCRIBE
from trilogue.broker.topic import Topic
from trilogue.gateway.http.tubemq_asked import (
    UNDEFINED,
    Answer,
    Asked,
    Row,
    date,
    ok,
    stamped,
    success,
)
from trilogue.gateway.http.tubemq_topics import FILE_BOUNDS, stamp_of
from trilogue.gateway.tubemq.door import BROKER_ID

NORMAL, SOFT_DELETED = 0, 1
CONDITION_OFF, CONDITION_ON = 0, 2


def manage_status(asked: Asked) -> str:
    """What a real master calls the state of a broker."""
    said = asked.rules.broker
    if said.publishes:
        return "online" if said.subscribes else "only-write"
    return "only-read" if said.subscribes else "offline"


def size_mib(asked: Asked, topic: Topic) -> int:
    """The largest message of a topic in MB, at least one."""
    return max(1, asked.rules.message_size_max(topic) // MIB)


def policy(retention_ms: int) -> str:
    """A retention as administrators write it; none is as long as they can write."""
    if retention_ms == FOREVER_MS:
        return "delete,999999999h"
    if retention_ms % 3_600_000 == 0:
        return f"delete,{retention_ms // 3_600_000}h"
    return f"delete,{max(1, retention_ms // 1_000)}s"


def stored(retention_ms: int) -> Answer:
    """How messages are stored, as real servers tell it."""
    return {"deletePolicy": policy(retention_ms), "dataStoreType": UNDEFINED, "dataPath": ""}


def configured(asked: Asked, topic: Topic) -> Answer:
    """What was said of a topic on this broker."""
    host, _, port = asked.door.broker_address.rpartition(":")
    settings = topic.settings
    return {
        "topicName": spelled_tubemq(topic.name),
        "brokerId": BROKER_ID,
        "topicNameId": UNDEFINED,
        "brokerIp": host,
        "brokerPort": int(port),
        "topicStatusId": SOFT_DELETED if TUBEMQ_DELETED in settings else NORMAL,
        "numTopicStores": 1,
        "numPartitions": len(topic.partitions),
        **FILE_BOUNDS,
        "acceptPublish": settings.get(TUBEMQ_PUBLISH) != "false",
        "acceptSubscribe": settings.get(TUBEMQ_SUBSCRIBE) != "false",
        **stored(topic.partitions[0].settings.retention_ms),
        **stamped(stamp_of(settings)),
    }


def _running(asked: Asked, topic: Topic) -> Answer:
    return {
        "acceptPublish": asked.rules.accepts_publish(topic),
        "acceptSubscribe": asked.rules.accepts_subscribe(topic),
        "numPartitions": len(topic.partitions),
        "numTopicStores": 1,
        "brokerManageStatus": manage_status(asked),
    }


def _deployed(asked: Asked, topic: Topic) -> list[Answer]:
    return [{**configured(asked, topic), "runInfo": _running(asked, topic)}]


def _summed(asked: Asked, topic: Topic) -> Answer:
    running = asked.rules.is_deployed(topic)
    return {
        "infoCount": 1,
        "totalCfgNumPart": len(topic.partitions),
        "isSrvAcceptPublish": asked.rules.accepts_publish(topic),
        "isSrvAcceptSubscribe": asked.rules.accepts_subscribe(topic),
        "totalRunNumPartCount": len(topic.partitions) if running else 0,
    }


def _wanted(asked: Asked) -> list[Topic]:
    """The topics of this broker that are asked for, in the state that is asked for."""
    if not asked.is_about_us:
        return []
    found = asked.found_topics()
    if asked.has("topicStatusId"):
        status = asked.number("topicStatusId", low=0, high=2)
        deleted = status != NORMAL
        found = [each for each in found if (TUBEMQ_DELETED in each.settings) == deleted]
    return [topic for topic in found if asked.allowed(ResourceKind.TOPIC, topic.name)]


def info(asked: Asked) -> Answer:
    """Tell all of topics, in the older shape."""
    return ok(
        [
            {
                "topicName": spelled_tubemq(topic.name),
                "maxMsgSizeInMB": size_mib(asked, topic),
                "topicInfo": _deployed(asked, topic),
                **_summed(asked, topic),
                "authData": _authorized(asked, topic),
            }
            for topic in _wanted(asked)
        ]
    )


def deploy_info(asked: Asked) -> Answer:
    """Tell all of topics, in the newer shape."""
    with_groups = asked.flag("withGroupAuthInfo", default=False)
    data = []
    for topic in _wanted(asked):
        told = {
            **control(asked, topic),
            "deployInfo": _deployed(asked, topic),
            **_summed(asked, topic),
        }
        if with_groups:
            groups = [consume(topic, group, said) for group, said in _said(asked, topic)]
            told |= {"groupAuthInfo": groups, "groupAuthCount": len(groups)}
        data.append(told)
    return ok(data)


def deploy_configure(asked: Asked) -> Answer:
    """Tell what was said of topics."""
    return ok([configured(asked, topic) for topic in _wanted(asked)])


def cluster_view(asked: Asked) -> Answer:
    """Count what topics have."""
    return ok(
        [
            {
                "topicName": spelled_tubemq(topic.name),
                "totalCfgBrokerCnt": 1,
                "totalCfgNumStore": 1,
                "totalRunNumStore": 1,
                "totalCfgNumPart": len(topic.partitions),
                "totalRunNumPartCount": len(topic.partitions),
                "isSrvAcceptPublish": asked.rules.accepts_publish(topic),
                "isSrvAcceptSubscribe": asked.rules.accepts_subscribe(topic),
                "enableAuthControl": _named_only(asked, topic),
            }
            for topic in _wanted(asked)
        ]
    )


def by_topic(asked: Asked) -> Answer:
    """Count the same in another shape."""
    data = []
    for topic in _wanted(asked):
        count = len(topic.partitions)
        publishes = asked.rules.accepts_publish(topic)
        subscribes = asked.rules.accepts_subscribe(topic)
        data.append(
            {
                "topicName": spelled_tubemq(topic.name),
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
                "enableAuthControl": _named_only(asked, topic),
            }
        )
    return ok(data)


def by_broker(asked: Asked) -> Answer:
    """Count what the broker has."""
    if not asked.is_about_us:
        return ok([])
    topics = _wanted(asked)
    host, _, port = asked.door.broker_address.rpartition(":")
    publish = [len(each.partitions) for each in topics if asked.rules.accepts_publish(each)]
    subscribe = [len(each.partitions) for each in topics if asked.rules.accepts_subscribe(each)]
    data: Answer = {
        "brokerId": BROKER_ID,
        "brokerIp": host,
        "brokerPort": int(port),
        "manageStatus": manage_status(asked),
        "acceptPublish": asked.rules.broker.publishes,
        "acceptSubscribe": asked.rules.broker.subscribes,
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
    return ok([data])


def names(asked: Asked) -> Answer:
    """Name the topics of the broker."""
    if not asked.is_about_us:
        return ok([])
    found = [spelled_tubemq(topic.name) for topic in _wanted(asked)]
    return ok([{"brokerId": BROKER_ID, "topicName": found, "topicCount": len(found)}])


def brokers_of(asked: Asked) -> Answer:
    """Name the brokers of topics."""
    with_ip = asked.flag("withIp", default=False)
    host = asked.door.broker_address.rpartition(":")[0]
    broker = {"brokerId": BROKER_ID, "brokerIp": host} if with_ip else BROKER_ID
    return ok(
        [
            {"topicName": spelled_tubemq(topic.name), "brokerInfo": [broker], "brokerCnt": 1}
            for topic in _wanted(asked)
        ]
    )


# -- who may read them


def control(asked: Asked, topic: Topic) -> Answer:
    """What was said of a topic as a whole."""
    said = asked.rules.topics.get(str(topic.name), NOTHING_OF_TOPIC)
    stamp = said.stamp if said.stamp.made_ms else stamp_of(topic.settings)
    return {
        "topicName": spelled_tubemq(topic.name),
        "topicNameId": UNDEFINED,
        "enableAuthControl": said.named_groups_only,
        "maxMsgSizeInMB": size_mib(asked, topic),
        **stamped(stamp),
    }


def control_info(asked: Asked) -> Answer:
    """Tell it."""
    return ok([control(asked, topic) for topic in _wanted(asked)])


def authorize_control(asked: Asked) -> Answer:
    """Tell which groups may read topics, in the older shape."""
    return ok([_old_control(asked, topic) for topic in _wanted(asked)])


def _old_control(asked: Asked, topic: Topic) -> Answer:
    said = asked.rules.topics.get(str(topic.name), NOTHING_OF_TOPIC)
    stamp = said.stamp if said.stamp.made_ms else stamp_of(topic.settings)
    name = {"topicName": spelled_tubemq(topic.name)}
    told = _said(asked, topic)
    return {
        **name,
        "isEnable": said.named_groups_only,
        **_dates(stamped(stamp)),
        "authConsumeGroup": [
            {**name, "groupName": group, **_dates(stamped(each.stamp))} for group, each in told
        ],
        "groupCount": len(told),
        "authFilterCondSet": [
            {**name, "groupName": group, **filters(each), **_dates(stamped(each.stamp))}
            for group, each in told
        ],
        "filterCount": len(told),
    }


def _authorized(asked: Asked, topic: Topic) -> Answer:
    said = asked.rules.topics.get(str(topic.name))
    told = _said(asked, topic)
    if said is None and not told:
        return {}
    stamp = NOTHING_OF_TOPIC.stamp if said is None else said.stamp
    return {
        "enableAuthControl": said is not None and said.named_groups_only,
        "createUser": stamp.made_by,
        "createDate": date(stamp.made_ms),
        "authConsumeGroup": [
            {"groupName": group, **_dates(stamped(each.stamp))} for group, each in told
        ],
        "groupCount": len(told),
        "authFilterCondSet": [
            {"groupName": group, **filters(each), **_dates(stamped(each.stamp))}
            for group, each in told
        ],
        "filterCount": len(told),
    }


def filters(said: ConsumeSaid) -> Answer:
    """Filters as older methods tell them: with a comma around each."""
    told = f",{','.join(said.filters)}," if said.filters else ",," if said.filtered else ""
    return {"condStatus": CONDITION_ON if said.filtered else CONDITION_OFF, "filterConds": told}


def consume(topic: Topic, group: str, said: ConsumeSaid) -> Answer:
    """What was said of a group and a topic, as newer methods tell it."""
    return consume_of(spelled_tubemq(topic.name), group, said)


def consume_of(topic: str, group: str, said: ConsumeSaid) -> Answer:
    """The same, of a topic that may not be there."""
    return {
        "topicName": topic,
        "groupName": group,
        "consumeEnable": said.may,
        "disableCsmRsn": said.reason,
        "filterEnable": said.filtered,
        "filterConds": filters(said)["filterConds"],
        **stamped(said.stamp),
    }


def _dates(told: Answer) -> Answer:
    return {key: value for key, value in told.items() if key not in {"dataVersionId", "serialId"}}


def _said(asked: Asked, topic: Topic) -> list[tuple[str, ConsumeSaid]]:
    return [(group, said) for group, said in asked.rules.of_topic(str(topic.name))]


def _named_only(asked: Asked, topic: Topic) -> bool:
    return asked.rules.topics.get(str(topic.name), NOTHING_OF_TOPIC).named_groups_only


# -- what the broker has of them


def store_info(asked: Asked) -> Answer:
    """Tell where partitions begin and end, and how large they are."""
    data = []
    for index, topic in enumerate(_wanted(asked), 1):
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
        data.append({"index": index, "topicName": spelled_tubemq(topic.name), "storeInfo": [store]})
    return success(data)


def published(asked: Asked) -> Answer:
    """Tell where partitions begin and end, in the shape for producers."""
    data = []
    for topic in _wanted(asked):
        parts = [
            {
                "partitionId": number,
                "offsetMin": part.log.start_offset,
                "offsetMax": part.log.high_watermark,
            }
            for number, part in enumerate(topic.partitions)
        ]
        named = spelled_tubemq(topic.name)
        data.append({"topicName": named, "offsetInfo": parts, "itemCount": len(parts)})
    return success(data, "dataCount")


TOPIC, DESCRIBE = ResourceKind.TOPIC, Operation.DESCRIBE
ROWS = (
    Row("admin_query_topic_info", info, TOPIC, DESCRIBE),
    Row("admin_query_topic_deploy_info", deploy_info, TOPIC, DESCRIBE),
    Row("admin_query_topic_deploy_configure", deploy_configure, TOPIC, DESCRIBE),
    Row("admin_query_cluster_topic_view", cluster_view, TOPIC, DESCRIBE),
    Row("admin_query_topic_broker_config_info", by_topic, TOPIC, DESCRIBE),
    Row("admin_query_broker_topic_config_info", by_broker, TOPIC, DESCRIBE),
    Row("admin_query_deployed_topics", names, TOPIC, DESCRIBE),
    Row("admin_query_deployed_broker_ids", brokers_of, TOPIC, DESCRIBE),
    Row("admin_query_topic_control_info", control_info, TOPIC, DESCRIBE),
    Row("admin_query_topic_authorize_control", authorize_control, TOPIC, DESCRIBE),
    Row("admin_query_broker_all_store_info", store_info, TOPIC, DESCRIBE, of_broker=True),
    Row("admin_query_pubinfo", published, TOPIC, DESCRIBE, of_broker=True),
)
