"""Texts that are not UTF-8 are refused, wherever they are in a message."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from trilogue.wire.errors import WireError
from trilogue.wire.pulsar import pulsar_pb2
from trilogue.wire.texts import check_text
from trilogue.wire.tubemq import broker_pb2, master_pb2

DEPTH_MAX = 3
Path = tuple[FieldDescriptor, ...]


def text_paths(kind: Descriptor, path: Path = ()) -> Iterator[Path]:
    """Find each text field of a message and of the messages in it."""
    for field in kind.fields:
        if field.type == FieldDescriptor.TYPE_STRING:
            yield (*path, field)
        elif field.message_type is not None and len(path) < DEPTH_MAX:
            yield from text_paths(field.message_type, (*path, field))


def with_text(path: Path) -> Message:
    """Return a message with the text "é" at the end of a path, twice in lists."""
    root = message = GetMessageClass(path[0].containing_type)()
    for field in path[:-1]:
        inside = getattr(message, field.name)
        message = inside.add() if field.is_repeated else inside
    last = path[-1]
    if last.is_repeated:
        getattr(message, last.name).extend(["a", "é"])
    else:
        setattr(message, last.name, "é")
    return root


PATHS = {
    ".".join([path[0].containing_type.name, *(field.name for field in path)]): path
    for module in (pulsar_pb2, master_pb2, broker_pb2)
    for kind in module.DESCRIPTOR.message_types_by_name.values()
    if kind.name != "BaseCommand"  # all of its messages are here by themselves
    for path in text_paths(kind)
}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_texts_are_utf8(path: Path):
    message = with_text(path)

    check_text(message)

    data = message.SerializePartialToString()
    broken = type(message)()
    broken.MergeFromString(data.replace("é".encode(), b"\xc3\x28"))
    with pytest.raises(WireError, match="not UTF-8"):
        check_text(broken)
