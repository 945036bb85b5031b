"""The descriptor of a .proto file from its text.

The text is parsed by proto-schema-parser; names of types are resolved here, as protoc does, among
the types of the file and of its imports. Options of fields and files that change how a message is
written are kept, all other options are not. Groups and extensions are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)

from trilogue.broker.errors import InvalidSchema

TEXT_MAX: Final = 64 << 10  # bytes of a text: parsing takes about 50 ms for a KiB
SCALARS: Final = {
    name: FieldDescriptorProto.Type.Value(f"TYPE_{name.upper()}")
    for name in (
        "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string",
        "bytes", "uint32", "sfixed32", "sfixed64", "sint32", "sint64",
    )
}  # fmt: skip
FILE_OPTIONS: Final = (
    "java_package", "java_outer_classname", "java_multiple_files", "go_package", "csharp_namespace",
    "objc_class_prefix", "php_namespace", "ruby_package", "deprecated",
)  # fmt: skip
FIELD_OPTIONS: Final = ("packed", "deprecated")
_ENDS: Final = {"message": 1 << 29, "enum": (1 << 31) - 1}  # after the largest number


def parse_proto(
    text: str, imports: Iterable[FileDescriptorProto], name: str
) -> FileDescriptorProto:
    """Return the descriptor of a file with these imports; InvalidSchema."""
    if len(text) > TEXT_MAX:
        raise InvalidSchema(f"a Protobuf schema has at most {TEXT_MAX} characters of text")
    try:
        return _FileBuilder(_parse(text), imports, name).build()
    except (InvalidSchema, ImportError):
        raise
    except Exception as error:  # noqa: BLE001 -- the parser raises what Python does on nonsense
        reason = f"no Protobuf schema: {str(error)[:200]}"
    raise InvalidSchema(reason)  # without the frames of the other error


def _parse(text: str) -> Any:
    """Return the syntax tree; InvalidSchema.

    The parser's own tree takes 16 MiB for a text of 64 KiB, in cycles: it is taken apart here.
    """
    from antlr4.error.ErrorListener import ErrorListener
    from antlr4.tree.Tree import ParseTreeListener
    from proto_schema_parser.parser import Parser

    class Raising(ErrorListener):  # type: ignore[misc]
        def syntaxError(self, *found: Any) -> None:  # noqa: N802 - antlr's name
            _, _, line, column, message, _ = found
            raise InvalidSchema(f"line {line}:{column} {message[:200]}")

    stages: list[Any] = []
    roots: list[Any] = []

    class RootListener(ParseTreeListener):  # type: ignore[misc]
        def enterEveryRule(self, ctx: Any) -> None:  # noqa: N802 - antlr's name
            roots.append(ctx)
            stages[-1].removeParseListener(self)

    def set_up(stage: Any) -> None:
        stage.removeErrorListeners()
        stage.addErrorListener(Raising())
        stages.append(stage)

    def set_up_parser(parser: Any) -> None:
        set_up(parser)
        parser.addParseListener(RootListener())

    try:
        return Parser(setup_lexer=set_up, setup_parser=set_up_parser).parse(text)
    except InvalidSchema as error:
        reason = str(error)
    finally:
        _take_apart(stages, roots)
    raise InvalidSchema(reason)  # without the frames of the parser


def _take_apart(stages: list[Any], nodes: list[Any]) -> None:
    """Break the cycles of lexer, parser and tree: the garbage collector comes once a minute."""
    while nodes:
        node = nodes.pop()
        nodes += getattr(node, "children", None) or ()
        node.parentCtx = None
        if hasattr(node, "children"):
            node.parser = node.children = node.exception = None
    for stage in stages:
        vars(stage).clear()
        for kind in type(stage).__mro__:
            for slot in vars(kind).get("__slots__", ()):
                setattr(stage, slot, None)


def type_names(file: FileDescriptorProto) -> Iterator[tuple[str, bool]]:
    """Iterate over the full names of a file's types; True: an enum."""
    prefix = f".{file.package}" if file.package else ""
    for enum in file.enum_type:
        yield f"{prefix}.{enum.name}", True
    for message in file.message_type:
        yield from _nested_names(message, prefix)


def _nested_names(message: DescriptorProto, prefix: str) -> Iterator[tuple[str, bool]]:
    name = f"{prefix}.{message.name}"
    yield name, False
    for enum in message.enum_type:
        yield f"{name}.{enum.name}", True
    for each in message.nested_type:
        yield from _nested_names(each, name)


class _FileBuilder:
    """Builds the descriptor: first all types without the types of fields, then those."""

    def __init__(self, file: Any, imports: Iterable[FileDescriptorProto], name: str) -> None:
        self._ast = file
        self._file = FileDescriptorProto(name=name)
        if file.edition is not None:
            raise InvalidSchema("editions are not served: syntax is proto2 or proto3")
        if (file.syntax or "proto2") not in {"proto2", "proto3"}:
            raise InvalidSchema("syntax is proto2 or proto3")
        self._is_proto3 = file.syntax == "proto3"
        if self._is_proto3:
            self._file.syntax = "proto3"
        self._names = {key: is_enum for each in imports for key, is_enum in type_names(each)}
        self._unresolved: list[tuple[str, str, Callable[[str, bool], None]]] = []

    def build(self) -> FileDescriptorProto:
        """Return the descriptor."""
        file = self._file
        for element in self._ast.file_elements:
            self._set_head(element)
        scope = f".{file.package}" if file.package else ""
        for element in self._ast.file_elements:
            match type(element).__name__:
                case "Message":
                    self._add_message(file.message_type.add(), element, scope)
                case "Enum":
                    _fill_enum(file.enum_type.add(), element)
                case "Service":
                    self._add_service(file.service.add(), element, scope)
                case "Package" | "Import" | "Option" | "Comment":
                    pass
                case kind:
                    raise InvalidSchema(f"{kind} is not served in a Protobuf schema")
        self._names.update(type_names(file))
        for name, inside, use in self._unresolved:
            full = self._resolve(name, inside)
            use(full, self._names[full])
        return file

    def _set_head(self, element: Any) -> None:
        file = self._file
        match type(element).__name__:
            case "Package":
                file.package = element.name
            case "Import":
                file.dependency.append(element.name)
                if element.public:
                    file.public_dependency.append(len(file.dependency) - 1)
            case "Option":
                _set_option(file.options, element, FILE_OPTIONS)

    def _resolve(self, name: str, scope: str) -> str:
        """Return the full name of a type that is named inside a scope."""
        if name.startswith("."):
            if name in self._names:
                return name
            raise InvalidSchema(f"{name[:100]!r} is no type of the file or its imports")
        while True:
            full = f"{scope}.{name}"
            if full in self._names:
                return full
            if not scope:
                raise InvalidSchema(f"{name[:100]!r} is no type of the file or its imports")
            scope = scope.rpartition(".")[0]

    def _add_message(self, message: DescriptorProto, element: Any, scope: str) -> None:
        message.name = element.name
        inside = f"{scope}.{element.name}"
        optional: list[FieldDescriptorProto] = []
        for each in element.elements:
            if type(each).__name__ == "Field":
                field = self._add_field(message, each, inside)
                if self._is_proto3 and _cardinality(each) == "OPTIONAL":
                    optional.append(field)
            else:
                self._add_part(message, each, inside)
        for field in optional:  # each is alone in a oneof, after all others
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")

    def _add_part(self, message: DescriptorProto, element: Any, scope: str) -> None:
        """Add what is not a field of its own."""
        match type(element).__name__:
            case "MapField":
                self._add_map(message, element, scope)
            case "OneOf":
                self._add_oneof(message, element, scope)
            case "Message":
                self._add_message(message.nested_type.add(), element, scope)
            case "Enum":
                _fill_enum(message.enum_type.add(), element)
            case "Reserved":
                _reserve(message.reserved_range, element.ranges, _ENDS["message"], 1)
                message.reserved_name.extend(element.names)
            case "Option" | "Comment":
                pass
            case kind:
                raise InvalidSchema(f"{kind} is not served in a Protobuf schema")

    def _add_field(
        self, message: DescriptorProto, element: Any, scope: str
    ) -> FieldDescriptorProto:
        field = message.field.add(name=element.name, number=element.number)
        label = _cardinality(element) or "OPTIONAL"
        field.label = FieldDescriptorProto.Label.Value(f"LABEL_{label}")
        self._set_type(field, element.type, scope)
        for option in element.options:
            if option.name == "default":
                field.default_value = _default_text(option.value)
            elif option.name == "json_name":
                field.json_name = str(option.value)
            else:
                _set_option(field.options, option, FIELD_OPTIONS)
        return field

    def _set_type(self, field: FieldDescriptorProto, name: str, scope: str) -> None:
        if name in SCALARS:
            field.type = SCALARS[name]
            return

        def use(full: str, is_enum: bool) -> None:
            field.type_name = full
            field.type = (
                FieldDescriptorProto.TYPE_ENUM if is_enum else FieldDescriptorProto.TYPE_MESSAGE
            )

        self._unresolved.append((name, scope, use))

    def _add_map(self, message: DescriptorProto, element: Any, scope: str) -> None:
        words = element.name.split("_")
        entry_name = "".join(word[:1].upper() + word[1:] for word in words) + "Entry"
        entry = message.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        for number, (name, kind) in enumerate(
            (("key", element.key_type), ("value", element.value_type)), 1
        ):
            field = entry.field.add(
                name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL
            )
            self._set_type(field, kind, scope)
        message.field.add(
            name=element.name,
            number=element.number,
            label=FieldDescriptorProto.LABEL_REPEATED,
            type=FieldDescriptorProto.TYPE_MESSAGE,
            type_name=f"{scope}.{entry_name}",
        )

    def _add_oneof(self, message: DescriptorProto, element: Any, scope: str) -> None:
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=element.name)
        for each in element.elements:
            match type(each).__name__:
                case "Field":
                    self._add_field(message, each, scope).oneof_index = index
                case "Option" | "Comment":
                    pass
                case kind:
                    raise InvalidSchema(f"{kind} is not served in a Protobuf schema")

    def _add_service(self, service: ServiceDescriptorProto, element: Any, scope: str) -> None:
        service.name = element.name
        for each in element.elements:
            if type(each).__name__ != "Method":
                continue
            method = service.method.add(name=each.name)
            method.client_streaming = each.input_type.stream
            method.server_streaming = each.output_type.stream
            for side, kind in (("input_type", each.input_type), ("output_type", each.output_type)):

                def use(full: str, _is_enum: bool, method: Any = method, side: str = side) -> None:
                    setattr(method, side, full)

                self._unresolved.append((kind.type, scope, use))


def _cardinality(element: Any) -> str | None:
    return None if element.cardinality is None else str(element.cardinality.value)


def _fill_enum(enum: EnumDescriptorProto, element: Any) -> None:
    enum.name = element.name
    for each in element.elements:
        match type(each).__name__:
            case "EnumValue":
                enum.value.add(name=each.name, number=each.number)
            case "EnumReserved":
                _reserve(enum.reserved_range, each.ranges, _ENDS["enum"], 0)
                enum.reserved_name.extend(each.names)
            case "Option":
                _set_option(enum.options, each, ("allow_alias", "deprecated"))


def _reserve(ranges: Any, texts: Iterable[str], end: int, beyond: int) -> None:
    """Add reserved ranges; those of messages end after their last number."""
    for text in texts:
        first, _, last = text.partition(" to ")
        top = end - 1 if last == "max" and beyond else end if last == "max" else int(last or first)
        ranges.add(start=int(first), end=top + beyond)


def _set_option(options: Any, element: Any, known: Iterable[str]) -> None:
    if element.name in known and isinstance(element.value, str | bool):
        setattr(options, element.name, element.value)


def _default_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(getattr(value, "name", value))
