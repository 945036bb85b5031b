"""Spark's DDL of a schema, such as `id BIGINT, tags ARRAY<STRING>`, without a JVM.

PySpark parses DDL in its JVM, which the Python workers that plan a data source cannot call.
"""

from __future__ import annotations

import re

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from trilogue.spark.errors import OptionError

ATOMIC: dict[str, DataType] = {
    "BOOLEAN": BooleanType(), "TINYINT": ByteType(), "BYTE": ByteType(), "SMALLINT": ShortType(),
    "SHORT": ShortType(), "INT": IntegerType(), "INTEGER": IntegerType(), "BIGINT": LongType(),
    "LONG": LongType(), "FLOAT": FloatType(), "REAL": FloatType(), "DOUBLE": DoubleType(),
    "DATE": DateType(), "TIMESTAMP": TimestampType(), "TIMESTAMP_LTZ": TimestampType(),
    "TIMESTAMP_NTZ": TimestampNTZType(), "STRING": StringType(), "BINARY": BinaryType(),
}  # fmt: skip
DEPTH_MAX = 32
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|(\w+)|([<>(),:])|('(?:[^'\\]|\\.)*'))")


def parse_ddl(text: str) -> StructType:
    """Return the struct that a DDL text describes; OptionError."""
    parser = _Parser(text)
    fields = parser.parse_fields(end=None, depth=0)
    return StructType(fields)


class _Parser:
    """A recursive descent over tokens; an empty token is the end."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        position = 0
        text = text.strip()
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None:
                raise OptionError(f"option 'payloadSchema': DDL with {text[position:][:20]!r}")
            self._tokens.append(found[0].strip())
            position = found.end()
        self._next = 0

    def peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def take_token(self) -> str:
        token = self.peek()
        self._next += 1
        return token

    def expect(self, wanted: str) -> None:
        token = self.take_token()
        if token != wanted:
            raise _error(f"{wanted!r} expected in place of {token!r}")

    def parse_fields(self, end: str | None, depth: int) -> list[StructField]:
        """Parse `name type [NOT NULL] [COMMENT 'text'], …` up to a closing token."""
        fields: list[StructField] = []
        while True:
            name = self.take_token()
            if not name or not (name[0] == "`" or name[0].isalnum() or name[0] == "_"):
                raise _error(f"the name of a field expected in place of {name!r}")
            if self.peek() == ":":
                self.take_token()
            kind = self.parse_type(depth)
            nullable = self._skip_not_null()
            if self.peek().upper() == "COMMENT":
                self.take_token()
                self.take_token()
            plain = name[1:-1].replace("``", "`") if name[0] == "`" else name
            if any(field.name.lower() == plain.lower() for field in fields):
                raise _error(f"field {plain!r} twice")
            fields.append(StructField(plain, kind, nullable=nullable))
            if self.peek() == ",":
                self.take_token()
                continue
            if self.peek() == (end or ""):
                return fields
            raise _error(f"{end or 'the end'!r} expected in place of {self.peek()!r}")

    def _skip_not_null(self) -> bool:
        """Return true: a message may lack any field, whatever its schema promises."""
        if self.peek().upper() == "NOT":
            self.take_token()
            if self.take_token().upper() != "NULL":
                raise _error("NOT without NULL")
        return True

    def parse_type(self, depth: int) -> DataType:
        if depth > DEPTH_MAX:
            raise _error(f"more than {DEPTH_MAX} levels")
        word = self.take_token()
        name = word.upper()
        if name in {"DECIMAL", "DEC", "NUMERIC"}:
            return self._parse_decimal()
        if name == "ARRAY":
            self.expect("<")
            element = self.parse_type(depth + 1)
            self.expect(">")
            return ArrayType(element)
        if name == "MAP":
            self.expect("<")
            key = self.parse_type(depth + 1)
            self.expect(",")
            value = self.parse_type(depth + 1)
            self.expect(">")
            return MapType(key, value)
        if name == "STRUCT":
            self.expect("<")
            fields = self.parse_fields(">", depth + 1)
            self.expect(">")
            return StructType(fields)
        if name not in ATOMIC:
            raise _error(f"no type {word!r}")
        return ATOMIC[name]

    def _parse_decimal(self) -> DataType:
        if self.peek() != "(":
            return DecimalType(10, 0)
        self.take_token()
        numbers = [self.take_token()]
        if self.peek() == ",":
            self.take_token()
            numbers.append(self.take_token())
        self.expect(")")
        if not all(each.isdigit() for each in numbers):
            raise _error(f"DECIMAL({','.join(numbers)})")
        precision, scale = int(numbers[0]), int(numbers[1]) if numbers[1:] else 0
        if not (0 < precision <= 38 and scale <= precision):
            raise _error(f"DECIMAL({precision},{scale})")
        return DecimalType(precision, scale)


def _error(problem: str) -> OptionError:
    return OptionError(
        f"option 'payloadSchema': {problem}; it takes DDL such as 'id BIGINT, tags ARRAY<STRING>'"
    )
