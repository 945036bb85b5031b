"""The text of a .proto file from its descriptor, in one form: without comments, in order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)

from trilogue.broker.schemas.protobuf_parser import FIELD_OPTIONS, FILE_OPTIONS, SCALARS

_SCALAR_NAMES = {number: name for name, number in SCALARS.items()}
_MAX_NUMBER = (1 << 29) - 1


def print_proto(file: FileDescriptorProto) -> str:
    """Return the text of a file."""
    lines = [f'syntax = "{file.syntax or "proto2"}";']
    if file.package:
        lines.append(f"package {file.package};")
    blocks = ["\n".join(lines)]
    public = set(file.public_dependency)
    blocks.append(
        "\n".join(
            f'import {"public " if index in public else ""}"{name}";'
            for index, name in enumerate(file.dependency)
        )
    )
    blocks.append("\n".join(f"option {text};" for text in _options(file.options, FILE_OPTIONS)))
    is_proto3 = file.syntax == "proto3"
    blocks += ["\n".join(_message(each, is_proto3, "")) for each in file.message_type]
    blocks += ["\n".join(_enum(each, "")) for each in file.enum_type]
    blocks += ["\n".join(_service(each)) for each in file.service]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _options(options: Any, known: tuple[str, ...]) -> Iterator[str]:
    for name in known:
        if options.HasField(name):
            value = getattr(options, name)
            yield f"{name} = {json.dumps(value)}"


def _message(message: DescriptorProto, is_proto3: bool, indent: str) -> Iterator[str]:
    inner = indent + "  "
    yield f"{indent}message {message.name} {{"
    for span in message.reserved_range:
        last = span.end - 1
        top = "max" if last == _MAX_NUMBER else str(last)
        yield f"{inner}reserved {span.start if last == span.start else f'{span.start} to {top}'};"
    if message.reserved_name:
        yield f"{inner}reserved {', '.join(map(json.dumps, message.reserved_name))};"
    entries = {each.name: each for each in message.nested_type if each.options.map_entry}
    printed: set[int] = set()
    for field in message.field:
        if field.HasField("oneof_index") and not field.proto3_optional:
            if field.oneof_index not in printed:
                printed.add(field.oneof_index)
                yield from _oneof(message, field.oneof_index, inner)
            continue
        yield f"{inner}{_field(field, is_proto3, entries)}"
    for nested in message.nested_type:
        if nested.name not in entries:
            yield from _message(nested, is_proto3, inner)
    for enum in message.enum_type:
        yield from _enum(enum, inner)
    yield f"{indent}}}"


def _oneof(message: DescriptorProto, index: int, indent: str) -> Iterator[str]:
    yield f"{indent}oneof {message.oneof_decl[index].name} {{"
    for field in message.field:
        if field.HasField("oneof_index") and field.oneof_index == index:
            yield f"{indent}  {_type(field)} {field.name} = {field.number}{_details(field)};"
    yield f"{indent}}}"


def _field(
    field: FieldDescriptorProto, is_proto3: bool, entries: dict[str, DescriptorProto]
) -> str:
    rest = f"{field.name} = {field.number}{_details(field)};"
    entry = entries.get(field.type_name.rpartition(".")[2])
    if entry is not None and field.label == FieldDescriptorProto.LABEL_REPEATED:
        key, value = entry.field
        return f"map<{_type(key)}, {_type(value)}> {rest}"
    label = FieldDescriptorProto.Label.Name(field.label).removeprefix("LABEL_").lower()
    has_label = label != "optional" or field.proto3_optional or not is_proto3
    return f"{label} {_type(field)} {rest}" if has_label else f"{_type(field)} {rest}"


def _details(field: FieldDescriptorProto) -> str:
    """Return the options of a field in brackets."""
    found = []
    if field.HasField("default_value"):
        is_text = field.type in {FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_BYTES}
        value = field.default_value
        found.append(f"default = {json.dumps(value) if is_text else value}")
    if field.json_name and field.json_name != _camel(field.name):
        found.append(f"json_name = {json.dumps(field.json_name)}")
    found += _options(field.options, FIELD_OPTIONS)
    return f" [{', '.join(found)}]" if found else ""


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def _type(field: FieldDescriptorProto) -> str:
    return _SCALAR_NAMES.get(field.type) or field.type_name


def _enum(enum: EnumDescriptorProto, indent: str) -> Iterator[str]:
    yield f"{indent}enum {enum.name} {{"
    if enum.options.allow_alias:
        yield f"{indent}  option allow_alias = true;"
    for span in enum.reserved_range:
        top = "max" if span.end == (1 << 31) - 1 else str(span.end)
        text = str(span.start) if span.end == span.start else f"{span.start} to {top}"
        yield f"{indent}  reserved {text};"
    if enum.reserved_name:
        yield f"{indent}  reserved {', '.join(map(json.dumps, enum.reserved_name))};"
    for value in enum.value:
        yield f"{indent}  {value.name} = {value.number};"
    yield f"{indent}}}"


def _service(service: ServiceDescriptorProto) -> Iterator[str]:
    yield f"service {service.name} {{"
    for method in service.method:
        takes = f"{'stream ' if method.client_streaming else ''}{method.input_type}"
        returns = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
        yield f"  rpc {method.name} ({takes}) returns ({returns});"
    yield "}"
