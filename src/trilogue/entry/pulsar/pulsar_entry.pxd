# Types for pulsar_entry.py when it is compiled; the .py alone defines what happens.
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from trilogue.entry.memory cimport (
    bytes_of, copy, load32, new_bytes, store32, store64, writable_bytes_of
)
from trilogue.wire.fields cimport Fields
from trilogue.wire.memory cimport signed32, signed64, truncated32

cdef Py_ssize_t _COMBINED

@cython.locals(data="const uint8_t *", out="uint8_t *", size=Py_ssize_t, at=Py_ssize_t,
               crc=uint32_t, total=uint32_t, has_crc=bint, metadata_size=int64_t, fields=Fields,
               key=uint64_t, sequence_id=int64_t, highest=int64_t, time_ms=int64_t, count=int64_t,
               records=int64_t, last=int64_t, flags=int, chunks=int32_t, attributes=int,
               values=tuple)
cpdef tuple build_entry(object section, int64_t broker_ms, int64_t message_count_limit=*)

cdef void _write_header(uint8_t *out, int64_t size, int attributes, int64_t count, int64_t records,
                        int64_t time_ms) noexcept

cdef void _write_block(uint8_t *out, int flags, uint32_t metadata_size, int64_t sequence_id,
                       int64_t highest) noexcept

@cython.locals(highest=int64_t)
cdef int64_t _highest(Fields fields, int64_t sequence_id) except? -1

@cython.locals(data="const uint8_t *", size=Py_ssize_t, at=Py_ssize_t)
cdef Py_ssize_t _body_at(object view) except -1

cdef str _checked_name(Fields fields)

@cython.locals(chunks=int32_t, chunk_id=int32_t, marker=int32_t, count=int64_t, room=int64_t)
cdef int64_t _message_count(Fields fields, int64_t payload_size, int64_t limit) except -1

@cython.locals(flags=int)
cdef int _flags(Fields fields) noexcept

@cython.locals(size=Py_ssize_t)
cdef uint32_t _checksum(object entry, uint32_t body_crc) except? 0
