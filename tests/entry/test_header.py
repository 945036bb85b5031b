"""The layouts of entries: one set of numbers, for Python and for compiled code."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from trilogue.entry import header
from trilogue.entry.pulsar import layout as pulsar
from trilogue.entry.tubemq import layout as tubemq
from trilogue.wire.pulsar import metadata_fields
from trilogue.wire.pulsar.pulsar_pb2 import MessageMetadata


@pytest.mark.parametrize("module", [header, pulsar, tubemq, metadata_fields])
def test_compiled_code_has_the_same_numbers(module: ModuleType):
    assert module.__file__
    types = Path(module.__file__).with_suffix(".pxd").read_text()

    numbers = {
        name: int(value) for name, value in re.findall(r"^ +(\w+) = (\d+)$", types, re.MULTILINE)
    }

    assert numbers
    assert numbers == {name: value for name, value in vars(module).items() if type(value) is int}


def test_sizes_are_those_of_the_structures():
    assert header.HEADER.size == header.HEADER_SIZE
    assert header.STAMP.size == header.STAMP_SIZE
    assert header.HEADER_SIZE + pulsar.FIXED_BLOCK.size == pulsar.PULSAR_SECTION_AT
    assert header.HEADER_SIZE + tubemq.FIXED_BLOCK.size == tubemq.TYPE_AT


SHORT = {
    "META_COMPRESSION": "compression",
    "META_EVENT_TIME": "event_time",
    "META_KEY_IS_B64": "partition_key_b64_encoded",
    "META_NULL_KEY": "null_partition_key",
    "META_NUM_CHUNKS": "num_chunks_from_msg",
    "META_NUM_MESSAGES": "num_messages_in_batch",
    "META_TOTAL_CHUNK_SIZE": "total_chunk_msg_size",
    "META_TXN_LEAST": "txnid_least_bits",
    "META_TXN_MOST": "txnid_most_bits",
}
"""Field numbers whose names are shorter than those of Pulsar's definition."""


def test_field_numbers_are_those_of_the_definition():
    declared = MessageMetadata.DESCRIPTOR.fields_by_name

    for name, number in vars(metadata_fields).items():
        if name.startswith("META_"):
            field = SHORT.get(name, name.removeprefix("META_").lower())
            assert declared[field].number == number
