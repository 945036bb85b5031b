"""Protobuf schemas: files with their imports, as Pulsar's PROTOBUF_NATIVE, and their compatibility.

A definition is JSON: "fileDescriptorSet" in base64, "rootMessageTypeName" and
"rootFileDescriptorName".

Compatible changes are those of Confluent's registry: messages, fields and enums may be added and
fields removed; messages may not be removed, nor types, labels and packages changed.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.message import DecodeError

from trilogue.broker.errors import InvalidSchema
from trilogue.broker.schemas.protobuf_parser import parse_proto
from trilogue.broker.schemas.protobuf_printer import print_proto

FILES_MAX: Final = 200  # of one schema and its imports
FILE_NAME: Final = "schema.proto"  # of a text
WELL_KNOWN: Final = {
    f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2"
    for name in (
        "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct",
        "timestamp", "type", "wrappers",
    )
}  # fmt: skip


def read_file(text: str, imports: Mapping[str, bytes]) -> FileDescriptorProto:
    """Return the descriptor of a source: a text, or a descriptor in base64; InvalidSchema.

    `imports` are definitions of other schemas, by the names of the files.
    """
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return parse_proto(text, _import_files(imports), FILE_NAME)
    if not file.message_type or file.extension:
        raise InvalidSchema("a Protobuf schema has a message, and no extensions")
    file.ClearField("source_code_info")
    return file


def make_native(file: FileDescriptorProto, imports: Mapping[str, bytes]) -> bytes:
    """Return the definition of a file; InvalidSchema where it does not fit its imports."""
    from google.protobuf.descriptor_pool import DescriptorPool

    if not file.message_type:
        raise InvalidSchema("a Protobuf schema has a message")
    needed = {each.name: each for each in _import_files(imports)}
    for name in file.dependency:
        _add_well_known(name, needed)
    if len(needed) > FILES_MAX:
        raise InvalidSchema(f"a Protobuf schema has at most {FILES_MAX} files")
    ordered = list(_ordered([*file.dependency], needed))
    pool = DescriptorPool()
    try:
        for each in (*ordered, file):
            pool.AddSerializedFile(each.SerializeToString())
        pool.FindFileByName(file.name)
    except Exception as error:  # the pool raises TypeError, and KeyError for what is missing
        raise InvalidSchema(f"no Protobuf schema: {str(error)[:200]}") from error
    files = FileDescriptorSet(file=[*ordered, file])
    prefix = f"{file.package}." if file.package else ""
    return json.dumps(
        {
            "fileDescriptorSet": base64.b64encode(files.SerializeToString()).decode(),
            "rootMessageTypeName": prefix + file.message_type[0].name,
            "rootFileDescriptorName": file.name,
        }
    ).encode()


def find_root(native: bytes) -> FileDescriptorProto:
    """Return the descriptor of the root file of a definition; InvalidSchema."""
    found = _files(native)
    name = json.loads(native).get("rootFileDescriptorName")
    if name not in found:
        raise InvalidSchema("a PROTOBUF_NATIVE schema without its root file")
    return found[name]


def make_pool(native: bytes) -> Any:
    """Return a DescriptorPool with the files of a definition; InvalidSchema."""
    from google.protobuf.descriptor_pool import DescriptorPool

    found = _files(native)
    for file in list(found.values()):
        for name in file.dependency:
            _add_well_known(name, found)
    if len(found) > FILES_MAX:
        raise InvalidSchema(f"a Protobuf schema has at most {FILES_MAX} files")
    pool = DescriptorPool()
    for each in _ordered([*found], found):  # each after its imports
        pool.AddSerializedFile(each.SerializeToString())
    return pool


def print_native(native: bytes) -> str:
    """Return the text of the root file of a definition; InvalidSchema."""
    return print_proto(find_root(native))


def _files(native: bytes) -> dict[str, FileDescriptorProto]:
    try:
        octets = base64.b64decode(json.loads(native)["fileDescriptorSet"])
        return {each.name: each for each in FileDescriptorSet.FromString(octets).file}
    except (ValueError, KeyError, TypeError, DecodeError) as error:
        raise InvalidSchema("a PROTOBUF_NATIVE schema that cannot be read") from error


def _import_files(imports: Mapping[str, bytes]) -> list[FileDescriptorProto]:
    """Return the files of imports, each root under the name by which it is imported."""
    found: dict[str, FileDescriptorProto] = {}
    for name, native in imports.items():
        root = find_root(native)
        for each in _files(native).values():
            if each.name != root.name:
                found.setdefault(each.name, each)
        renamed = FileDescriptorProto()
        renamed.CopyFrom(root)
        renamed.name = name
        found[name] = renamed
    for name in WELL_KNOWN:
        _add_well_known(name, found)
    return list(found.values())


def _add_well_known(name: str, found: dict[str, FileDescriptorProto]) -> None:
    module = WELL_KNOWN.get(name)
    if module is None or name in found:
        return
    file = FileDescriptorProto()
    import_module(module).DESCRIPTOR.CopyToProto(file)
    found[name] = file
    for each in file.dependency:
        _add_well_known(each, found)


def _ordered(
    names: list[str], found: Mapping[str, FileDescriptorProto]
) -> Iterator[FileDescriptorProto]:
    """Iterate over the files that are needed, each after its imports; InvalidSchema."""
    done: set[str] = set()
    todo = [(name, False) for name in reversed(names)]
    while todo:
        name, is_ready = todo.pop()
        if name in done:
            continue
        if name not in found:
            raise InvalidSchema(f"the import {name[:100]!r} is in no reference")
        if is_ready:
            done.add(name)
            yield found[name]
            continue
        todo.append((name, True))
        todo += [(each, False) for each in reversed(found[name].dependency) if each not in done]
        if len(todo) > 10 * FILES_MAX:
            raise InvalidSchema("imports that need each other")


# ---- compatibility


def find_difference(reader: bytes, writer: bytes) -> str:
    """Return the first reason why a reader's schema is incompatible; "" if it is compatible."""
    ours, theirs = find_root(reader), find_root(writer)
    if ours.package != theirs.package:
        return f"the package {theirs.package!r} became {ours.package!r}"
    mine, written = _messages(ours), _messages(theirs)
    for name, message in written.items():
        if name not in mine:
            return f"the message {name} was removed"
        reason = next(_compare_fields(mine[name], message), "")
        if reason:
            return f"{name}: {reason}"
    return ""


def _messages(file: FileDescriptorProto) -> dict[str, DescriptorProto]:
    found: dict[str, DescriptorProto] = {}
    todo = [(f".{file.package}" if file.package else "", each) for each in file.message_type]
    while todo:
        prefix, message = todo.pop()
        name = f"{prefix}.{message.name}"
        found[name] = message
        todo += [(name, each) for each in message.nested_type]
    return dict(sorted(found.items()))


def _compare_fields(ours: DescriptorProto, theirs: DescriptorProto) -> Iterator[str]:
    mine = {field.number: field for field in ours.field}
    written = {field.number: field for field in theirs.field}
    required = FieldDescriptorProto.LABEL_REQUIRED
    for number, old in written.items():
        new = mine.get(number)
        if new is None:
            if old.label == required:
                yield f"the required field {old.name} was removed"
            elif _oneof(theirs, old):
                yield f"the field {old.name} was removed from a oneof"
            continue
        if _kind(new) != _kind(old):
            yield f"the type of field {number} was changed"
        is_repeated = FieldDescriptorProto.LABEL_REPEATED
        if (new.label == is_repeated) != (old.label == is_repeated) and new.type not in _LENGTHS:
            yield f"the label of field {number} was changed"
    for number, new in mine.items():
        if number not in written and new.label == required:
            yield f"the required field {new.name} was added"
    for moved in _moved(ours, theirs, mine, written):
        yield f"fields were moved to the oneof {moved}"


def _moved(
    ours: DescriptorProto,
    theirs: DescriptorProto,
    mine: Mapping[int, FieldDescriptorProto],
    written: Mapping[int, FieldDescriptorProto],
) -> Iterator[str]:
    """Iterate over the oneofs that more than one existing field moved to, or one that existed."""
    existing = {_oneof(theirs, field) for field in theirs.field}
    moves: dict[str, int] = {}
    for number, new in mine.items():
        old, name = written.get(number), _oneof(ours, new)
        if old is not None and name and not _oneof(theirs, old):
            moves[name] = moves.get(name, 0) + 1
    for name, count in moves.items():
        if count > 1 or name in existing:
            yield name


def _oneof(message: DescriptorProto, field: FieldDescriptorProto) -> str:
    if not field.HasField("oneof_index") or field.proto3_optional:
        return ""
    return message.oneof_decl[field.oneof_index].name


def _kind(field: FieldDescriptorProto) -> Any:
    """Return what types on the wire are read as one another."""
    if field.type in {FieldDescriptorProto.TYPE_MESSAGE, FieldDescriptorProto.TYPE_GROUP}:
        return field.type_name
    for kinds in _KINDS:
        if field.type in kinds:
            return kinds
    return field.type


_LENGTHS: Final = frozenset({FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_BYTES})
_KINDS: Final = (
    frozenset({
        FieldDescriptorProto.TYPE_INT32, FieldDescriptorProto.TYPE_UINT32,
        FieldDescriptorProto.TYPE_INT64, FieldDescriptorProto.TYPE_UINT64,
        FieldDescriptorProto.TYPE_BOOL, FieldDescriptorProto.TYPE_ENUM,
    }),
    frozenset({FieldDescriptorProto.TYPE_SINT32, FieldDescriptorProto.TYPE_SINT64}),
    frozenset({FieldDescriptorProto.TYPE_FIXED32, FieldDescriptorProto.TYPE_SFIXED32}),
    frozenset({FieldDescriptorProto.TYPE_FIXED64, FieldDescriptorProto.TYPE_SFIXED64}),
    _LENGTHS,
)  # fmt: skip
