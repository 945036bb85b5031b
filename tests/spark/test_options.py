"""Options: what is understood, and that nothing else is accepted."""

from __future__ import annotations

import pytest

from trilogue.log.objects.obstore_store import StoreOptions
from trilogue.spark.errors import OptionError
from trilogue.spark.plan import check_order
from trilogue.spark.read_options import COLUMNS, ReadOptions
from trilogue.spark.segments.segment_place import SegmentPlace
from trilogue.spark.write_options import WriteOptions

SERVERS = {"kafka.bootstrap.servers": "h:1"}
READ = {**SERVERS, "subscribe": "t"}


def test_names_are_not_case_sensitive():
    options = ReadOptions.parse({"KAFKA.bootstrap.servers": "h:1", "SUBSCRIBE": "b, a,b"})

    assert options.topics == ("a", "b")
    assert options.columns == COLUMNS[:-1]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"kafka.no.such.key": "9"}, "unknown option 'kafka.no.such.key'"),
        ({"kafka.auto.offset.reset": "earliest"}, "startingOffsets is where"),
        ({"kafka.enable.auto.commit": "true"}, "kafka.group.id publishes"),
        ({"kafka.value.deserializer": "x"}, "binary columns"),
        ({"waitingForNonExistedTopic": "true"}, "subscribePattern finds"),
        ({"kafka.isolation.level": "serializable"}, "read_committed or read_uncommitted"),
        ({"kafka.bootstrap.servers": ""}, "required"),
        ({"kafka.security.protocol": "TLS"}, "security_protocol"),
        ({"kafka.sasl.username": "u"}, "sasl_username needs"),
        ({"kafka.ssl.truststore.type": "JKS"}, "ssl.truststore.type: only PEM"),
        ({"kafka.ssl.keystore.password": "hidden"}, "^(?!.*hidden).*stores with a password"),
        ({"assign": "{}"}, "exactly one"),
        ({"startingOffsets": "soon"}, "not JSON"),
        ({"startingOffsets": '{"t": 3}'}, "form"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "below -2"),
        ({"endingOffsets": "earliest"}, "cannot be earliest"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "below -1"),
        ({"columns": "key,colour"}, "colour"),
        ({"columns": " "}, "none"),
        ({"maxOffsetsPerTrigger": "0"}, "from 1 on"),
        ({"minPartitions": "many"}, "from 1 on"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"startingTimestamp": "2013-01-01"}, "milliseconds"),
        ({"endingOffsetsByTimestamp": '{"t": {"0": -1}}'}, "below 0"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "error or latest"),
        ({"maxTriggerDelay": "soon"}, "duration"),
        ({"maxDecompressedBytes": "0"}, "from 1 on"),
    ],
)
def test_unsupported_options_are_refused(more, message):
    with pytest.raises(OptionError, match=message):
        ReadOptions.parse({**READ, **more})


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"path": "s3://bucket/data"}, "not s3://…: the manifest lies in the data directory"),
        ({"path": "/data", "kafka.isolation.level": "read_uncommitted"}, "only committed messages"),
        ({"path": "/data", "kafka.group.id": "g"}, "needs 'kafka.bootstrap.servers'"),
        ({"path": "/data", "objects.region": "eu"}, "needs 'objects.url'"),
        ({"path": "/data", "objects.url": "ftp://b"}, "'objects.url': .*neither s3"),
        ({"objects.url": "s3://bucket"}, "needs a data directory"),
        ({}, "'kafka.bootstrap.servers' is required"),
    ],
)
def test_options_of_a_data_directory_are_checked(more, message):
    with pytest.raises(OptionError, match=message):
        ReadOptions.parse({"subscribe": "t", **more})


def test_a_path_from_the_root_is_a_data_directory():
    plain = ReadOptions.parse({"subscribe": "t", "path": "/data/"})
    with_store = ReadOptions.parse(
        {"subscribe": "t", "path": "file:///da%20ta", "objects.url": "s3://bucket/prefix"}
    )

    assert plain.segments == SegmentPlace("/data")
    assert with_store.segments == SegmentPlace("/da ta", StoreOptions("s3://bucket/prefix"))


@pytest.mark.parametrize("more", [{"subscribePattern": "("}, {"assign": '{"t": ["x"]}'}, {}])
def test_topics_are_named_in_one_understandable_way(more):
    with pytest.raises(OptionError):
        ReadOptions.parse({**SERVERS, **more})


@pytest.mark.parametrize(
    "way", [{"subscribe": "d"}, {"subscribePattern": "d?"}, {"assign": '{"d": [0]}'}]
)
def test_malformed_messages_go_to_a_topic_that_is_not_read(way):
    typed = {"payload": "json", "payloadSchema": "id BIGINT", "deadLetterTopic": "d"}

    with pytest.raises(OptionError, match=r"deadLetterTopic.*is read itself"):
        ReadOptions.parse({**SERVERS, **typed, **way})
    with pytest.raises(OptionError, match="deadLetterTopic is with mode=DROPMALFORMED"):
        ReadOptions.parse({**READ, **typed, "mode": "FAILFAST"})
    with pytest.raises(OptionError, match="'deadLetterTopic' needs"):
        ReadOptions.parse({"subscribe": "t", "path": "/data", **typed})
    assert ReadOptions.parse({**READ, **typed}).dead_letter_topic == "d"


def test_names_of_pulsar_spark_stand_for_ours():
    one = ReadOptions.parse({**SERVERS, "topics": "a,b", "pollTimeoutMs": "50"})
    other = ReadOptions.parse({**SERVERS, "topicsPattern": "a.*", "predefinedSubscription": "s"})

    assert (one.topics, one.patience_ms) == (("a", "b"), 50)
    assert (other.pattern, other.group) == ("a.*", "s")
    with pytest.raises(OptionError, match="'subscribe' is given twice, by two names"):
        ReadOptions.parse({**SERVERS, "topic": "a", "subscribe": "b"})


def test_options_that_change_no_row_are_passed_over():
    """What scripts for spark-sql-kafka and pulsar-spark have beside the options of the rows."""
    read = {
        "groupIdPrefix": "etl", "fetchOffset.numRetries": "5", "fetchOffset.retryIntervalMs": "9",
        "kafka.max.poll.records": "500", "kafka.session.timeout.ms": "9", "kafka.client.id": "c",
        "kafka.fetch.max.bytes": "9", "kafka.enable.auto.commit": "false",
        "subscriptionPrefix": "s", "allowDifferentTopicSchemas": "true",
    }  # fmt: skip
    write = {
        "includeHeaders": "true", "kafka.acks": "all", "kafka.linger.ms": "5", "kafka.retries": "3",
        "kafka.enable.idempotence": "true", "kafka.max.request.size": "9",
    }  # fmt: skip

    assert ReadOptions.parse({**READ, **read}) == ReadOptions.parse(READ)
    assert WriteOptions.parse({**SERVERS, **write}) == WriteOptions.parse(SERVERS)
    assert ReadOptions.parse({**READ, "includeHeaders": "true"}).columns == COLUMNS


def test_every_way_to_name_topics():
    by_pattern = ReadOptions.parse({**SERVERS, "subscribePattern": "t.*"})
    by_partition = ReadOptions.parse({**SERVERS, "assign": '{"t": [1, 0, 1]}'})
    by_path = ReadOptions.parse({**SERVERS, "path": "t"})

    assert by_pattern.pattern == "t.*"
    assert by_partition.assign == {"t": (0, 1)}
    assert by_path.topics == ("t",)


def test_columns_keep_the_table_s_order_and_headers_come_on_request():
    some = ReadOptions.parse({**READ, "columns": "Offset, key", "includeHeaders": "true"})
    all_of_them = ReadOptions.parse({**READ, "includeHeaders": "true"})

    assert some.columns == ("key", "offset", "headers")
    assert all_of_them.columns == COLUMNS


def test_offsets_by_partition():
    options = ReadOptions.parse({**READ, "startingOffsets": '{"t": {"0": 23, "1": -2}}'})

    assert options.starting == {"t": {0: 23, 1: -2}}


@pytest.mark.parametrize(
    "more",
    [
        {"maxOffsetsPerTrigger": "5"},
        {"minOffsetsPerTrigger": "5", "maxTriggerDelay": "1m"},
        {"maxBytesPerTrigger": "5"},
        {"kafka.group.id": "g"},
    ],
)
def test_stream_options_have_no_effect_on_a_batch(more, caplog):
    """As in Spark's connector: a job has one set of options for both."""
    with caplog.at_level("INFO", "trilogue.spark"):
        ReadOptions.parse({**READ, **more}).for_batch()

    assert f"option={next(iter(more))}" in caplog.text


def test_a_batch_that_would_read_nothing_is_refused():
    with pytest.raises(OptionError, match="nothing would be read"):
        ReadOptions.parse({**READ, "startingOffsets": "latest"}).for_batch()


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (
            {"startingOffsets": '{"t": {"0": -2, "1": 8}}'},
            {"endingOffsets": '{"t": {"0": 7, "1": 7}}'},
        ),
        (
            {"startingOffsetsByTimestamp": '{"t": {"1": 8}}'},
            {"endingOffsetsByTimestamp": '{"t": {"1": 7}}'},
        ),
    ],
)
def test_a_batch_that_starts_behind_its_end_is_refused(start, end):
    with pytest.raises(OptionError, match="t-1 is to start at 8, which is behind its end, 7"):
        ReadOptions.parse({**READ, **start, **end}).for_batch()
    latest = {
        name: text.replace("7", "-1") for name, text in end.items() if name == "endingOffsets"
    }
    ReadOptions.parse({**READ, **start, **latest}).for_batch()


def test_a_start_that_proves_to_be_behind_the_end_is_refused():
    """One of them is a time: known when it is found."""
    check_order({("t", 0): 7, ("t", 1): 3}, {("t", 0): 7, ("t", 1): 4})

    with pytest.raises(OptionError, match=r"t-0 starts at offset 8, .* offset 7"):
        check_order({("t", 0): 8}, {("t", 0): 7})


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"endingOffsets": '{"t": {"0": 3}}'}, "batch reads only"),
        ({"endingTimestamp": "3"}, "batch reads only"),
        ({"pushFilters": "true"}, "batch reads only"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "more than"),
    ],
)
def test_batch_options_are_refused_in_a_stream(more, message):
    with pytest.raises(OptionError, match=message):
        ReadOptions.parse({**READ, **more}).for_stream()


def test_one_time_for_all_wins_over_times_for_each():
    for_each = {"startingOffsetsByTimestamp": '{"t": {"0": 5}}'}

    assert ReadOptions.parse({**READ, **for_each}).starting_ms == {"t": {0: 5}}
    assert ReadOptions.parse({**READ, **for_each, "startingTimestamp": "9"}).starting_ms == 9


@pytest.mark.parametrize(
    ("text", "seconds"), [("15m", 900), ("90s", 90), ("1h", 3600), ("250", 0.25), ("2 min", 120)]
)
def test_durations_are_spelled_as_spark_spells_them(text, seconds):
    options = ReadOptions.parse({**READ, "maxTriggerDelay": text})

    assert seconds == options.max_trigger_delay_s


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"kafka.transactional.id": "t"}, "deliveryGuarantee=exactly-once"),
        ({"kafka.key.serializer": "x"}, "binary columns"),
        ({"kafka.partitioner.class": "x"}, "a column partition chooses"),
        ({"kafka.compression.type": "brotli"}, "compression takes one of"),
        ({"kafka.compression.type": "gzip", "compression": "lz4"}, "given twice"),
    ],
)
def test_options_of_javas_producer_are_refused_with_what_to_do(more, message):
    with pytest.raises(OptionError, match=message):
        WriteOptions.parse({**SERVERS, **more})
    assert WriteOptions.parse({**SERVERS, "kafka.compression.type": "gzip"}).codec == 1


def test_a_writer_s_options():
    options = WriteOptions.parse({**SERVERS, "path": "t", "compression": "ZSTD", "queryName": "q"})

    assert (options.topic, options.codec) == ("t", 4)
    with pytest.raises(OptionError, match="compression"):
        WriteOptions.parse({**SERVERS, "compression": "brotli"})
    with pytest.raises(OptionError, match="unknown option 'subscribe'"):
        WriteOptions.parse({**READ})


EXACTLY_ONCE = {"deliveryGuarantee": "exactly-once"}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"deliveryGuarantee": "at-most-once"}, "at-least-once or exactly-once"),
        ({"txnAppId": "a", "txnVersion": "0"}, "needs deliveryGuarantee=exactly-once"),
        ({**EXACTLY_ONCE, "txnAppId": "a"}, "given together"),
        ({**EXACTLY_ONCE, "txnVersion": "1"}, "given together"),
        ({**EXACTLY_ONCE, "txnAppId": "", "txnVersion": "1"}, "1 to 900 bytes"),
        ({**EXACTLY_ONCE, "txnAppId": "a", "txnVersion": "-1"}, "from 0 on"),
    ],
)
def test_a_batch_that_could_not_be_known_again_is_refused(more, message):
    with pytest.raises(OptionError, match=message):
        WriteOptions.parse({**SERVERS, "topic": "t", **more}).for_batch()


def test_micro_batches_are_counted_by_spark():
    options = {**SERVERS, "topic": "t", **EXACTLY_ONCE, "txnAppId": "a"}

    assert WriteOptions.parse(options).for_stream().application_id == "a"
    with pytest.raises(OptionError, match="for batches only"):
        WriteOptions.parse({**options, "txnVersion": "1"}).for_stream()
