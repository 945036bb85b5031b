# Types for pulsar_entry.py when it is compiled; the .py alone defines what happens.
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from trilogue.entry.header cimport CHECKED_FROM, CHECKSUM_AT
from trilogue.entry.memory cimport (
    bytes_of, copy, load32, new_bytes, quick_crc32c, store32, store64, writable_bytes_of, write_header
)
from trilogue.entry.pulsar.layout cimport (
    BATCH, BLOCK_VERSION, BROKER_METADATA_PART, BROKER_TIME_AT, CHECKSUM_PART, CHUNK, DELAYED,
    ENCRYPTED, FLAGS_AT, HIGHEST_SEQUENCE_ID_AT, KEYED, METADATA_SIZE_AT, OUR_CHECKSUM,
    PART_HEAD_SIZE, PART_MAGIC, PRODUCER_KEY_AT, PULSAR_SECTION_AT, RESERVED_AT,
    SECTION_CHECKSUM_AT, SEQUENCE_ID_AT, UNCHECKED_AT, VERSION_AT
)
from trilogue.wire.fields cimport Fields
from trilogue.wire.memory cimport signed32, signed64, truncated32
from trilogue.wire.pulsar.metadata_fields cimport (
    META_CHUNK_ID, META_COMPRESSION, META_DELIVER_AT_TIME, META_ENCRYPTION_KEYS,
    META_HIGHEST_SEQUENCE_ID, META_MARKER_TYPE, META_NUM_CHUNKS, META_NUM_MESSAGES,
    META_ORDERING_KEY, META_PARTITION_KEY, META_PRODUCER_NAME, META_PUBLISH_TIME,
    META_REPLICATED_FROM, META_SEQUENCE_ID, META_TXN_LEAST, META_TXN_MOST,
    META_UNCOMPRESSED_SIZE, META_UUID
)

cdef Py_ssize_t _COMBINED
cdef int _PULSAR, _TRANSACTIONAL
cdef int64_t _SMALLEST_MESSAGE, _OTHER_TEXTS


@cython.final
cdef class SentSection:
    cdef readonly Py_ssize_t body_at, metadata_size
    cdef readonly uint32_t crc
    cdef readonly int64_t sequence_id, highest_sequence_id, time_ms, message_count, record_count
    cdef readonly int flags, attributes
    cdef readonly str producer_name

    @cython.locals(data="const uint8_t *", size=Py_ssize_t, at=Py_ssize_t, known=int64_t,
                   crc=uint32_t, has_crc=bint, metadata_size=int64_t, fields=Fields,
                   sequence_id=int64_t, time_ms=int64_t, count=int64_t)
    cpdef read(self, object view, int64_t message_count_limit=*)

    cpdef bint can_be_sent(self) noexcept
    cpdef bint is_encrypted(self) noexcept


cpdef tuple build_entry(object section, int64_t broker_ms, int64_t message_count_limit=*)

@cython.locals(out="uint8_t *", size=Py_ssize_t, at=Py_ssize_t, crc=uint32_t, total=uint32_t,
               key=uint64_t, time_ms=int64_t, count=int64_t, records=int64_t, attributes=int,
               values=tuple, stamp_values=tuple)
cpdef tuple build_checked(object view, SentSection sent, int64_t broker_ms)

cdef void _write_block(uint8_t *out, SentSection sent) noexcept

@cython.locals(highest=int64_t)
cdef int64_t _highest(Fields fields, int64_t sequence_id) except? -1

@cython.locals(data="const uint8_t *", size=Py_ssize_t, at=Py_ssize_t, room=Py_ssize_t)
cdef Py_ssize_t _body_at(object view) except -1

cdef bint _begins_part(const uint8_t *data, Py_ssize_t at, int kind) noexcept

cdef str _checked_name(Fields fields)

@cython.locals(chunks=int32_t, chunk_id=int32_t, marker=int32_t, count=int64_t, room=int64_t)
cdef int64_t _message_count(Fields fields, int64_t payload_size, int64_t limit) except -1

@cython.locals(chunks=int32_t)
cdef int64_t _record_count(Fields fields, int64_t count) noexcept

cdef int _attributes(Fields fields) noexcept

@cython.locals(flags=int)
cdef int _flags(Fields fields, bint has_crc) noexcept

@cython.locals(size=Py_ssize_t)
cdef uint32_t _checksum(object entry, uint32_t body_crc) except? 0
