"""Options of all three clients: accepted spellings, refusals, renamed options."""

from __future__ import annotations

from typing import Any

import pytest

from trilogue.client import kafka, pulsar, tubemq
from trilogue.client.errors import ClientError, InvalidOption, InvalidOptionType
from trilogue.client.kafka import options as kafka_options
from trilogue.client.options import build_options
from trilogue.client.pulsar import options as pulsar_options
from trilogue.client.tubemq import options as tube_options


@pytest.mark.parametrize(
    ("kind", "name", "given", "expected"),
    [
        (kafka_options.ProducerOptions, "acks", "all", kafka.Acks.ALL),
        (kafka_options.ProducerOptions, "acks", "ALL", kafka.Acks.ALL),
        (kafka_options.ProducerOptions, "acks", -1, kafka.Acks.ALL),
        (kafka_options.ProducerOptions, "acks", "-1", kafka.Acks.ALL),
        (kafka_options.ProducerOptions, "acks", 1, kafka.Acks.LEADER),
        (kafka_options.ProducerOptions, "acks", "1", kafka.Acks.LEADER),
        (kafka_options.ProducerOptions, "compression", "zstd", kafka.Compression.ZSTD),
        (kafka_options.ProducerOptions, "compression", 4, kafka.Compression.ZSTD),
        (kafka_options.ProducerOptions, "when_full", "raise", kafka.WhenFull.RAISE),
        (kafka_options.ConsumerOptions, "reset_to", "earliest", kafka.EARLIEST),
        (kafka_options.ConsumerOptions, "isolation", "read_committed", kafka.READ_COMMITTED),
        (kafka_options.ConsumerOptions, "protocol", "consumer", kafka.GroupProtocol.CONSUMER),
        (
            kafka_options.ConsumerOptions,
            "assignors",
            "cooperative-sticky",
            (kafka.Assignor.COOPERATIVE_STICKY,),
        ),
        (pulsar_options.ProducerOptions, "compression", "lz4", pulsar.Compression.LZ4),
        (pulsar_options.ProducerOptions, "hashing", "java-string", pulsar.Hashing.JAVA_STRING),
        (
            pulsar_options.ProducerOptions,
            "access",
            "exclusive with fencing",
            pulsar.AccessMode.EXCLUSIVE_WITH_FENCING,
        ),
        (tube_options.ConsumerOptions, "initial_position", "last", tubemq.Position.LAST),
        (tube_options.ConsumerOptions, "confirm", "next get", tubemq.Confirm.NEXT_GET),
        (tube_options.ClientOptions, "bad_frames", "raise", tubemq.BadFrames.RAISE),
    ],
)
def test_a_member_of_an_enum_may_be_given_by_name_or_value(
    kind: Any, name: str, given: Any, expected: Any
):
    value = getattr(kind(**{name: given}), name)

    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("kind", "name", "given", "allowed"),
    [
        (kafka_options.ProducerOptions, "acks", "most", "LEADER"),
        (kafka_options.ProducerOptions, "acks", 2, "LEADER"),
        (kafka_options.ProducerOptions, "compression", "zst", "ZSTD"),
        (kafka_options.ProducerOptions, "linger_s", -1, "0 or more"),
        (kafka_options.ProducerOptions, "delivery_timeout_s", float("inf"), "above 0"),
        (kafka_options.ProducerOptions, "max_in_flight", 0, "from 1"),
        (kafka_options.ConsumerOptions, "reset_to", -3, "earliest"),
        (kafka_options.ConsumerOptions, "assignors", (), "at least one"),
        (kafka_options.ClientOptions, "request_timeout_s", 0, "above 0"),
        (pulsar_options.ClientOptions, "keep_alive_s", 0, "above 0"),
        (pulsar_options.ProducerOptions, "routing", "random", "ROUND_ROBIN"),
        (pulsar_options.ProducerOptions, "max_pending", 0, "from 1"),
        (tube_options.ClientOptions, "heartbeat_s", -1, "above 0"),
        (tube_options.ProducerOptions, "tries", 0, "from 1"),
        (tube_options.ConsumerOptions, "balance", "serve", "SERVER"),
    ],
)
def test_a_value_that_is_not_allowed_is_a_value_error(
    kind: Any, name: str, given: Any, allowed: str
):
    """The message names the option, the value and what is allowed."""
    with pytest.raises(ValueError, match=name) as refused:
        kind(**{name: given})

    assert isinstance(refused.value, InvalidOption)
    assert repr(given) in str(refused.value)
    assert allowed in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "name", "given"),
    [
        (kafka_options.ProducerOptions, "acks", True),
        (kafka_options.ProducerOptions, "acks", 1.0),
        (kafka_options.ProducerOptions, "acks", pulsar.AccessMode.EXCLUSIVE),
        (kafka_options.ProducerOptions, "idempotent", "yes"),
        (kafka_options.ProducerOptions, "linger_s", "1"),
        (kafka_options.ProducerOptions, "batch_bytes", 1e6),
        (kafka_options.ProducerOptions, "partitioner", "murmur2"),
        (kafka_options.ConsumerOptions, "group", 5),
        (kafka_options.ConsumerOptions, "assignors", 5),
        (pulsar_options.ClientOptions, "token", 5),
        (pulsar_options.ProducerOptions, "batching", "all"),
        (pulsar_options.ProducerOptions, "properties", "a=b"),
        (tube_options.ClientOptions, "password", b"secret"),
        (tube_options.ConsumerOptions, "bound", {}),
    ],
)
def test_a_value_of_a_wrong_type_is_a_type_error(kind: Any, name: str, given: Any):
    with pytest.raises(TypeError, match=name) as refused:
        kind(**{name: given})

    assert isinstance(refused.value, InvalidOptionType)
    assert isinstance(refused.value, ClientError)
    assert repr(given) in str(refused.value)


def test_an_unknown_option_is_refused_with_the_nearest_name():
    with pytest.raises(TypeError, match="no option ack: did you mean acks"):
        build_options(kafka_options.ProducerOptions, {"ack": "all"})
    with pytest.raises(TypeError, match=r"the options are .*close_timeout_s"):
        build_options(kafka_options.ProducerOptions, {"xyz": 1})


@pytest.mark.parametrize(
    ("module", "kind", "old", "new", "value"),
    [
        (pulsar_options, "ClientOptions", "operation_timeout_s", "request_timeout_s", 7),
        (pulsar_options, "ProducerOptions", "send_timeout_s", "delivery_timeout_s", 7),
        (tube_options, "ProducerOptions", "max_in_flight", "max_pending", 7),
        (tube_options, "ProducerOptions", "max_bytes_in_flight", "max_memory_bytes", 7),
        (tube_options, "ConsumerOptions", "position", "initial_position", tubemq.Position.LAST),
    ],
)
def test_the_earlier_name_of_an_option_works_and_warns(
    module: Any, kind: str, old: str, new: str, value: Any
):
    options_class = getattr(module, kind)
    with pytest.warns(DeprecationWarning, match=f"{old} is now called {new}"):
        options = build_options(options_class, {old: value}, module.RENAMED_OPTIONS)

    assert getattr(options, new) == value
    with pytest.raises(InvalidOption, match=f"give {new} only"):
        build_options(options_class, {old: value, new: value}, module.RENAMED_OPTIONS)
