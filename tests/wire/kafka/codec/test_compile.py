"""The compiled codec: round trips, and errors for what a version cannot express."""

from __future__ import annotations

import dataclasses
import traceback

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.wire.kafka import samples
from tests.wire.kafka.instances import SPOKEN, Spoken, messages, newest
from trilogue.wire.errors import EncodeError, WireError
from trilogue.wire.kafka.codec.compile import decoder, encoder, gatherer, source
from trilogue.wire.kafka.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from trilogue.wire.kafka.metadata.metadata import MetadataRequest, MetadataResponse
from trilogue.wire.kafka.produce import PartitionProduceData, ProduceRequest, TopicProduceData

few = settings(
    max_examples=6, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
)


def encoded(message: object, version: int) -> bytes:
    out = bytearray()
    encoder(type(message), version)(message, out)
    return bytes(out)


@pytest.mark.parametrize("spoken", [newest(each, pytest.mark.long) for each in SPOKEN])
@few
@given(data=st.data())
def test_every_message_comes_back_as_it_went(spoken: Spoken, data: st.DataObject):
    cls, version = spoken
    message = data.draw(messages(cls, version))

    raw = encoded(message, version)
    back, end = decoder(cls, version)(b"##" + raw + b"##", 2)

    assert back == message
    assert end == 2 + len(raw)
    assert b"".join(gatherer(cls, version)(message, bytearray())) == raw


@pytest.mark.parametrize("version", range(samples.LAST + 1))
@given(data=st.data())
def test_every_type_comes_back_as_it_went(version: int, data: st.DataObject):
    message = data.draw(messages(samples.Everything, version))

    raw = encoded(message, version)
    back, end = decoder(samples.Everything, version)(raw)

    assert back == message
    assert end == len(raw)


def test_field_that_a_version_lacks_decodes_to_its_default():
    back, _ = decoder(MetadataRequest, 0)(encoded(MetadataRequest(), 0))

    assert back.allow_auto_topic_creation is True
    assert MetadataResponse().cluster_authorized_operations == -0x80000000


def test_defaults_are_not_shared_lists():
    assert FetchResponse().responses is not FetchResponse().responses
    first, _ = decoder(FetchResponse, 1)(encoded(FetchResponse(), 1))
    again, _ = decoder(FetchResponse, 1)(encoded(FetchResponse(), 1))

    assert first.node_endpoints is not again.node_endpoints


def test_a_shared_default_structure_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        PartitionData().current_leader.leader_id = 1  # type: ignore[misc]


def test_decoded_records_are_views_of_the_buffer():
    data = PartitionProduceData(index=1, records=b"batch")
    raw = bytearray(
        encoded(ProduceRequest(topic_data=[TopicProduceData(partition_data=[data])]), 9)
    )

    request, _ = decoder(ProduceRequest, 9)(memoryview(raw))
    raw[raw.index(b"batch")] = ord("B")

    assert bytes(request.topic_data[0].partition_data[0].records) == b"Batch"


def test_records_in_pieces_are_passed_on_uncopied():
    pieces = [b"one", memoryview(b"two")]
    response = FetchResponse(
        responses=[
            FetchableTopicResponse(
                partitions=[PartitionData(records=pieces), PartitionData(records=[])]
            )
        ]
    )

    buffers = gatherer(FetchResponse, 12)(response, bytearray(b"head"))

    assert buffers[1:3] == pieces
    assert buffers[1] is pieces[0]
    assert buffers[2] is pieces[1]
    assert b"".join(buffers) == b"head" + encoded(response, 12)


def test_records_in_pieces_can_end_the_message():
    buffers = gatherer(samples.Tail, 0)(samples.Tail(records=[b"x"]), bytearray())

    assert buffers == [bytearray(b"\0\0\0\1"), b"x"]


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (samples.Everything(small=128), 0),
        (samples.Everything(unsigned=-1), 0),
        (samples.Everything(text="x" * 32768), 0),
        (samples.Everything(text="x" * 32768), samples.FLEXIBLE),
        (samples.Everything(text="\ud800"), 0),
        (samples.Everything(identity=b"short"), 0),
        (samples.Everything(identities=[b"short"]), 0),
        (samples.Everything(text=None), 0),  # type: ignore[arg-type]
        (samples.Everything(numbers=None), 0),  # type: ignore[arg-type]
        (samples.Everything(numbers=[1 << 31]), 0),
        (samples.Everything(numbers=[1 << 31] * 20), 0),
        (MetadataRequest(topics=None), 0),
    ],
    ids=range(12),
)
def test_field_that_a_version_lacks_is_refused_without_output(message: object, version: int):
    for make in (encoder, gatherer):
        out = bytearray(b"before")

        expected = f"{type(message).__name__} v{version} cannot encode this"
        with pytest.raises(EncodeError, match=expected):
            make(type(message), version)(message, out)

        assert out == b"before"


def test_unknown_tagged_fields_are_skipped():
    known, unknown = b"\x05\x04\0\0\0\7", b"\x63\x03abc"
    body = encoded(samples.Tagged(), 1)
    assert body.endswith(b"\0")

    for tags in (b"\2" + known + unknown, b"\2" + unknown + known):
        back, end = decoder(samples.Tagged, 1)(body[:-1] + tags)

        assert back == samples.Tagged(number=7)
        assert end == len(body) - 1 + len(tags)


def test_a_field_can_become_tagged_in_a_later_version():
    assert encoded(samples.Tagged(number=7), 0) == b"\0\0\0\7\0"
    assert encoded(samples.Tagged(number=7), 1) == b"\1\5\4\0\0\0\7"
    assert encoded(samples.Tagged(number=3), 1) == b"\0"


def test_tagged_fields_go_out_in_ascending_order():
    raw = encoded(samples.Tagged(number=7, name="x"), 1)

    assert raw == b"\2\2\2\2x\5\4\0\0\0\7"


def test_tagged_field_with_a_wrong_size_is_refused():
    with pytest.raises(WireError, match="tagged field 5"):
        decoder(samples.Tagged, 1)(b"\1\5\3\0\0\0\7")


@pytest.mark.parametrize("version", [-1, 14, 99])
def test_a_version_that_does_not_exist_is_a_programming_error(version: int):
    with pytest.raises(ValueError, match="ProduceRequest has no version"):
        decoder(ProduceRequest, version)


def test_generated_functions_are_compiled_once():
    assert decoder(ProduceRequest, 9) is decoder(ProduceRequest, 9)


def test_a_traceback_shows_the_generated_line():
    with pytest.raises(WireError) as caught:
        decoder(ProduceRequest, 9)(b"")

    text = "".join(traceback.format_exception(caught.value))
    assert "<ProduceRequest v9 decode>" in text
    assert "buf[pos]" in text


def test_the_source_can_be_read():
    assert "def decode(buf, pos=0):" in source(ProduceRequest, 9, "decode")
    assert "def gather(m, head):" in source(ProduceRequest, 9, "gather")
