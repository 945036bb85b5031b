"""Decodes messages of clients of a Confluent registry, each by the schema that its header names."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from trilogue.spark.payload.avro_decoder import AvroDecoder
from trilogue.spark.payload.confluent_registry import SERIALIZED, ConfluentRegistry, schema_cache
from trilogue.spark.payload.confluent_schemas import expand_avro
from trilogue.spark.payload.framing import HEADER_BYTES, MAGIC, VALUE_BYTES_MAX

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class _Decoder(Protocol):
    def decode(self, values: pa.Array) -> pa.Array:
        """Return a struct for each message, null for a null and for one that is malformed."""


class RegisteredDecoder:
    """Finds the decoder of each message by the id before it.

    Messages whose id the registry does not know are malformed; where it does not answer, the task
    fails with SchemaUnavailable.
    """

    def __init__(self, kind: pa.StructType, find_decoder: Callable[[int], _Decoder | None]) -> None:
        """`find_decoder` returns the decoder of an id, for bodies; None for an unknown id."""
        self.type = kind
        self._find_decoder = find_decoder
        self._decoders: dict[int, _Decoder] = {}

    def decode(self, values: pa.Array) -> pa.Array:
        """Return a struct for each message, null for a null and for one that is malformed."""
        import pyarrow as pa
        import pyarrow.compute as pc

        ids = _read_ids(values).dictionary_encode()
        parts, places = [], []
        for number, coded in enumerate(ids.dictionary.to_pylist()):
            chosen = pc.fill_null(pc.equal(ids.indices, number), False)
            parts.append(self._decode_by(coded, values.filter(chosen)))
            places.append(pc.indices_nonzero(chosen))
        if len(parts) == 1 and not ids.null_count:
            return parts[0]
        places.append(pc.indices_nonzero(ids.is_null()))
        parts.append(pa.nulls(len(places[-1]), self.type))
        # `places` is a permutation: what sorts it is its inverse
        return pa.concat_arrays(parts).take(pc.sort_indices(pa.concat_arrays(places)))

    def _decode_by(self, coded: bytes, values: pa.Array) -> pa.Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        (schema_id,) = struct.unpack(">xI", coded)
        decoder = self._decoders.get(schema_id) or self._find_decoder(schema_id)
        if decoder is None:
            return pa.nulls(len(values), self.type)
        self._decoders[schema_id] = decoder
        return decoder.decode(pc.binary_slice(values, HEADER_BYTES, VALUE_BYTES_MAX))


def _read_ids(values: pa.Array) -> pa.Array:
    """Return the headers, null for a message without one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    has_header = pc.and_(
        pc.starts_with(values, MAGIC), pc.greater_equal(pc.binary_length(values), HEADER_BYTES)
    )
    header = pc.binary_slice(values, 0, HEADER_BYTES)
    return pc.if_else(has_header, header, pa.scalar(None, pa.binary()))


def make_avro_decoder(
    registry: ConfluentRegistry, definition: str, schema: StructType
) -> RegisteredDecoder:
    """Return a decoder to the columns of `definition`, whichever versions messages have."""
    whole = AvroDecoder(definition, schema)
    cache = schema_cache(registry, "")

    def find_decoder(schema_id: int) -> _Decoder | None:
        found = cache.find_schema(schema_id)
        if found is None or found.language != "AVRO":
            return None
        written = expand_avro(registry, found)
        return whole if written == definition else AvroDecoder(definition, schema, written)

    return RegisteredDecoder(whole.type, find_decoder)


def make_protobuf_decoder(
    registry: ConfluentRegistry, definition: bytes, message: str, schema: StructType
) -> RegisteredDecoder:
    """Return a decoder of the messages of one type."""
    from trilogue.spark.payload.confluent_protobuf import TypedDecoder, expand_protobuf
    from trilogue.spark.payload.protobuf_decoder import ProtobufDecoder

    decoder = ProtobufDecoder(definition, message, schema)
    cache = schema_cache(registry, SERIALIZED)

    def find_decoder(schema_id: int) -> _Decoder | None:
        found = cache.find_schema(schema_id)
        if found is None or found.language != "PROTOBUF":
            return None
        return TypedDecoder(decoder, message, expand_protobuf(registry, found))

    return RegisteredDecoder(decoder.type, find_decoder)
