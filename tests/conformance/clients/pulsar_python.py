"""PyPI's pulsar-client (the C++ library) behind the verbs of pulsar.py, in this process."""

from __future__ import annotations

import base64
import datetime as dt
import itertools
import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import _pulsar
import pulsar
from pulsar.schema import Integer, JsonSchema, Record, String, StringSchema

from tests.conformance.clients.pulsar import ClientError

COMPRESSIONS = {
    "none": pulsar.CompressionType.NONE,
    "lz4": pulsar.CompressionType.LZ4,
    "zlib": pulsar.CompressionType.ZLib,
    "zstd": pulsar.CompressionType.ZSTD,
    "snappy": pulsar.CompressionType.SNAPPY,
}
TYPES = {
    "exclusive": pulsar.ConsumerType.Exclusive,
    "shared": pulsar.ConsumerType.Shared,
    "failover": pulsar.ConsumerType.Failover,
    "key_shared": pulsar.ConsumerType.KeyShared,
}
ACCESSES = {
    "shared": pulsar.ProducerAccessMode.Shared,
    "exclusive": pulsar.ProducerAccessMode.Exclusive,
    "wait": pulsar.ProducerAccessMode.WaitForExclusive,
    "fencing": pulsar.ProducerAccessMode.ExclusiveWithFencing,
}
Words = Mapping[str, object]


class InProcess:
    """Verbs are methods; each call has a thread of its own, as in the other drivers."""

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(16, thread_name_prefix="pulsar-python")
        self.numbers = itertools.count(1)
        self.things: dict[int, object] = {}
        self.schemas: dict[int, object] = {}
        self.messages: dict[tuple[int, str], pulsar.Message] = {}

    def start(self, verb: str, **words: object) -> Future[object]:
        return self.threads.submit(self._run, getattr(self, f"do_{verb}"), words)

    @staticmethod
    def _run(method: Callable[[Words], object], words: Words) -> object:
        try:
            return method(words)
        except Exception as error:
            raise ClientError(f"{type(error).__name__}: {error}") from error

    def keep(self, thing: object) -> int:
        handle = next(self.numbers)
        self.things[handle] = thing
        return handle

    def do_connect(self, w: Words) -> object:
        return self.keep(
            pulsar.Client(
                w["url"],
                operation_timeout_seconds=max(1, int(w.get("timeout_ms", 30_000)) // 1000),
                logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
                authentication=authentication_of(w),
                tls_trust_certs_file_path=w.get("ca"),
                tls_validate_hostname="ca" in w,
            )
        )

    def do_producer(self, w: Words) -> object:
        schema = schema_of(w)
        options = {
            "producer_name": w.get("name"),
            "schema": schema,
            "initial_sequence_id": w.get("sequence"),
            "send_timeout_millis": w.get("send_timeout_ms", 30_000),
            "compression_type": COMPRESSIONS[w.get("compression", "none")],
            "block_if_queue_full": True,
            "batching_enabled": bool(w.get("batching")),
            "batching_max_messages": w.get("batch_messages", 1000),
            "batching_max_publish_delay_ms": w.get("batch_delay_ms", 10),
            "batching_type": pulsar.BatchingType.KeyBased
            if w.get("by_key")
            else pulsar.BatchingType.Default,
            "chunking_enabled": bool(w.get("chunking")),
            "message_routing_mode": pulsar.PartitionsRoutingMode.UseSinglePartition
            if w.get("single")
            else pulsar.PartitionsRoutingMode.RoundRobinDistribution,
            "properties": w.get("properties"),
            "access_mode": ACCESSES[w.get("access", "shared")],
        }
        producer = self.things[w["of"]].create_producer(w["topic"], **options)
        handle = self.keep(producer)
        self.schemas[handle] = schema
        return {
            "handle": handle,
            "name": producer.producer_name(),
            "sequence": producer.last_sequence_id(),
        }

    def do_send(self, w: Words) -> object:
        producer, schema = self.things[w["of"]], self.schemas[w["of"]]
        results: list[dict[str, str]] = [{} for _ in w["messages"]]
        left = threading.Semaphore(0)

        def sent(number: int) -> Callable[[object, object], None]:
            def received(result: object, id_: object) -> None:
                if result == _pulsar.Result.Ok:
                    results[number]["id"] = token(id_)
                else:
                    results[number]["error"] = str(result)
                left.release()

            return received

        for number, message in enumerate(w["messages"]):
            producer.send_async(content(schema, message), sent(number), **result_name(message))
        producer.flush()
        for _ in results:
            left.acquire()
        return results

    def do_consumer(self, w: Words) -> object:
        options = {
            "consumer_type": TYPES[w.get("type", "exclusive")],
            "schema": schema_of(w),
            "receiver_queue_size": w.get("queue", 1000),
            "consumer_name": w.get("name"),
            "unacked_messages_timeout_ms": w.get("ack_timeout_ms"),
            "negative_ack_redelivery_delay_ms": w.get("nack_ms", 100),
            "is_read_compacted": bool(w.get("compacted")),
            "properties": w.get("properties"),
            "pattern_auto_discovery_period": 1,
            "initial_position": pulsar.InitialPosition.Earliest
            if w.get("earliest")
            else pulsar.InitialPosition.Latest,
            "start_message_id_inclusive": bool(w.get("inclusive")),
            "batch_index_ack_enabled": bool(w.get("batch_index")),
        }
        if "dead_after" in w:
            options["dead_letter_policy"] = pulsar.ConsumerDeadLetterPolicy(
                w["dead_after"], w.get("dead_topic"), w.get("dead_subscription")
            )
        if w.get("ranges") or w.get("out_of_order"):
            mode = (
                pulsar.KeySharedMode.Sticky if w.get("ranges") else pulsar.KeySharedMode.AutoSplit
            )
            options["key_shared_policy"] = pulsar.ConsumerKeySharedPolicy(
                mode,
                bool(w.get("out_of_order")),
                [tuple(bounds) for bounds in w["ranges"]] if w.get("ranges") else None,
            )
        topics = w.get("topics")
        if "pattern" in w:
            import re

            topics = re.compile(str(w["pattern"]))
        elif len(topics) == 1:
            (topics,) = topics
        return self.keep(self.things[w["of"]].subscribe(topics, w["subscription"], **options))

    def do_reader(self, w: Words) -> object:
        return self.keep(
            self.things[w["of"]].create_reader(
                w["topic"],
                id_of(w["start"]),
                is_read_compacted=bool(w.get("compacted")),
                start_message_id_inclusive=bool(w.get("inclusive")),
            )
        )

    def do_view(self, w: Words) -> object:
        return self.keep(self.things[w["of"]].create_table_view(w["topic"]))

    def do_partitions(self, w: Words) -> object:
        return self.things[w["of"]].get_topic_partitions(w["topic"])

    def do_receive(self, w: Words) -> object:
        thing = self.things[w["of"]]
        wait = thing.read_next if isinstance(thing, pulsar.Reader) else thing.receive
        got: list[Words] = []
        end = dt.datetime.now(dt.UTC) + dt.timedelta(milliseconds=w["timeout_ms"])
        while len(got) < w["count"]:
            left = int((end - dt.datetime.now(dt.UTC)).total_seconds() * 1000)
            try:
                message = wait(max(left, 1))
            except pulsar.Timeout:
                break
            self.messages[w["of"], token(message.message_id())] = message
            got.append(described(message))
        return got

    def do_ack(self, w: Words) -> object:
        consumer = self.things[w["of"]]
        way = consumer.acknowledge_cumulative if w.get("cumulative") else consumer.acknowledge
        for id_ in w["ids"]:
            way(self.messages[w["of"], id_])
        return None

    def do_nack(self, w: Words) -> object:
        for id_ in w["ids"]:
            self.things[w["of"]].negative_acknowledge(self.messages[w["of"], id_])
        return None

    def do_redeliver(self, w: Words) -> object:
        return self.things[w["of"]].redeliver_unacknowledged_messages()

    def do_unsubscribe(self, w: Words) -> object:
        return self.things[w["of"]].unsubscribe()

    def do_last(self, w: Words) -> object:
        return token(self.things[w["of"]].get_last_message_id())

    def do_seek(self, w: Words) -> object:
        return self.things[w["of"]].seek(w["time"] if "time" in w else id_of(w["to"]))

    def do_has_next(self, w: Words) -> object:
        return self.things[w["of"]].has_message_available()

    def do_sequence(self, w: Words) -> object:
        return self.things[w["of"]].last_sequence_id()

    def do_entries(self, w: Words) -> object:
        found: dict[str, str] = {}
        self.things[w["of"]].for_each(
            lambda key, value: found.update({key: base64.b64encode(value).decode()})
        )
        return found

    def do_close(self, w: Words) -> object:
        self.messages = {key: kept for key, kept in self.messages.items() if key[0] != w["of"]}
        self.schemas.pop(w["of"], None)
        return self.things.pop(w["of"]).close()


def token(id_: object) -> str:
    if isinstance(id_, pulsar.MessageId):
        return base64.b64encode(id_.serialize()).decode()
    return base64.b64encode(pulsar.MessageId.wrap(id_).serialize()).decode()


def id_of(spelled: object) -> object:
    match spelled:
        case "earliest":
            return pulsar.MessageId.earliest
        case "latest":
            return pulsar.MessageId.latest
    return pulsar.MessageId.deserialize(base64.b64decode(str(spelled)))


def authentication_of(w: Words) -> pulsar.Authentication | None:
    if "token" in w:
        return pulsar.AuthenticationToken(w["token"])
    if "user" in w:
        return pulsar.AuthenticationBasic(w["user"], w["password"])
    if "certificate" in w:
        return pulsar.AuthenticationTLS(w["certificate"], w["key"])
    return None


def schema_of(w: Words) -> object:
    schema = w.get("schema")
    if schema is None:
        return pulsar.schema.BytesSchema()
    if schema["type"] == "string":
        return StringSchema()
    if schema["type"] != "json":
        raise ValueError(f"schema {schema['type']}")
    kinds = {"int": Integer, "string": String}
    fields = {
        entry["name"]: kinds[
            entry["type"][-1] if isinstance(entry["type"], list) else entry["type"]
        ]()
        for entry in schema["definition"]["fields"]
    }
    return JsonSchema(type(schema["definition"]["name"], (Record,), fields))


def content(schema: object, message: Words) -> object:
    if isinstance(schema, JsonSchema):
        return schema._record_cls(**message["record"])
    value = base64.b64decode(message["value"])
    return value.decode() if isinstance(schema, StringSchema) else value


def result_name(message: Words) -> dict[str, object]:
    words: dict[str, object] = {"properties": message.get("properties")}
    renamed = {
        "key": "partition_key",
        "ordering_key": "ordering_key",
        "event_time": "event_timestamp",
        "sequence": "sequence_id",
    }
    for name, theirs in renamed.items():
        if name in message:
            words[theirs] = message[name]
    return words


def described(message: pulsar.Message) -> Words:
    id_ = message.message_id()
    whole = {
        "id": token(id_),
        "ledger": id_.ledger_id(),
        "entry": id_.entry_id(),
        "batch": id_.batch_index(),
        "partition": id_.partition(),
        "value": None if message.has_null_value() else base64.b64encode(message.data()).decode(),
        "key": message.partition_key(),
        "ordering_key": message.ordering_key(),
        "properties": message.properties(),
        "event_time": message.event_timestamp(),
        "publish_time": message.publish_timestamp(),
        "redelivery": message.redelivery_count(),
        "topic": message.topic_name(),
        "producer": message.producer_name(),
    }
    if isinstance(message._schema, JsonSchema):
        whole["record"] = json.loads(message.data())
    return whole
