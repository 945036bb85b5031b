"""Text in messages of the protobuf runtime, which does not check what proto2 calls a string."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from trilogue.wire.errors import WireError


@cache
def _text_fields(kind: Descriptor) -> tuple[FieldDescriptor, ...]:
    """The fields of a message in which text may stand, at whatever depth."""
    wanted = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE)
    return tuple(field for field in kind.fields if field.type in wanted)


@cache
def _flat_texts(kind: Descriptor) -> tuple[str, ...] | None:
    """The names of a message's text fields; None where it has lists or messages in it."""
    fields = _text_fields(kind)
    if any(each.message_type is not None or each.is_repeated for each in fields):
        return None
    return tuple(field.name for field in fields)


def check_text(message: Message) -> None:
    """Refuse text that is not UTF-8, which the runtime would hand out as bytes."""
    for field in _text_fields(message.DESCRIPTOR):
        if field.is_repeated:
            values = getattr(message, field.name)
        elif message.HasField(field.name):
            values = (getattr(message, field.name),)
        else:
            continue
        if field.message_type is not None:
            _check_messages(field, values)
        elif not all(isinstance(value, str) for value in values):
            raise WireError(f"{field.full_name} is not UTF-8")


def _check_messages(field: FieldDescriptor, values: Iterable[Message]) -> None:
    names = _flat_texts(field.message_type)
    if names is None:
        for value in values:
            check_text(value)
        return
    for value in values:  # of which a list may have a hundred thousand
        for name in names:
            if not isinstance(getattr(value, name), str):
                raise WireError(f"{field.full_name}.{name} is not UTF-8")
