"""Text in messages of the protobuf runtime, which does not check what proto2 calls a string."""

from __future__ import annotations

from functools import cache

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from trilogue.wire.errors import WireError


@cache
def _text_fields(kind: Descriptor) -> tuple[FieldDescriptor, ...]:
    """The fields of a message in which text may stand, at whatever depth."""
    wanted = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE)
    return tuple(field for field in kind.fields if field.type in wanted)


def check_text(message: Message) -> None:
    """Refuse text that is not UTF-8, which the runtime would hand out as bytes."""
    for field in _text_fields(message.DESCRIPTOR):
        if field.is_repeated:
            values = getattr(message, field.name)
        elif message.HasField(field.name):
            values = (getattr(message, field.name),)
        else:
            continue
        for value in values:
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                check_text(value)
            elif not isinstance(value, str):
                raise WireError(f"{field.full_name} is not UTF-8")
