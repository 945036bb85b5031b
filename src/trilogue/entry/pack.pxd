# Types for pack.py when it is compiled; the .py alone defines what happens.
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from trilogue.entry.memory cimport (
    bytes_of, copy, int32_at, int64_at, new_bytes, of_bytes, writable_bytes_of
)
from trilogue.entry.walk cimport RecordWalker


@cython.locals(raw=uint64_t, size=int)
cpdef int varint_size(int64_t value) noexcept

cdef Py_ssize_t _sized(Py_ssize_t size) noexcept


@cython.final
cdef class ByteInput:
    cdef object held
    cdef Py_ssize_t rows, offset, room
    cdef bint has_nulls
    cdef const uint8_t *bits
    cdef const uint8_t *data
    cdef const int32_t *ends

    cdef inline Py_ssize_t start_at(self, Py_ssize_t row) noexcept

    @cython.locals(at=Py_ssize_t, start=int64_t, end=int64_t)
    cdef inline Py_ssize_t size_at(self, Py_ssize_t row) except -2


@cython.final
cdef class ArrowRows:
    cdef object held
    cdef readonly Py_ssize_t count
    cdef const int64_t *times
    cdef ByteInput keys, values, lists, header_keys, header_values
    cdef bint has_keys, has_values, has_headers, has_choice
    cdef Py_ssize_t room
    cdef object choice
    cdef const int32_t *chosen

    cpdef object choose(self, object numbers)

    @cython.locals(at=Py_ssize_t)
    cdef inline Py_ssize_t row_at(self, Py_ssize_t row) except -1


@cython.final
cdef class RecordPacker:
    cdef readonly Py_ssize_t used
    cdef readonly int64_t base_timestamp, max_timestamp
    cdef Py_ssize_t room
    cdef bytearray buffer
    cdef uint8_t *data

    cpdef object clear(self)

    @cython.locals(room=Py_ssize_t, buffer=bytearray, data="uint8_t *")
    cdef int reserve(self, Py_ssize_t size) except -1

    @cython.locals(raw=uint64_t)
    cdef inline void put_varint(self, int64_t value) noexcept

    cdef inline void put_sized(self, const uint8_t *data, Py_ssize_t pos, Py_ssize_t size) noexcept

    cdef int put_bytes(self, bytes value) except -1

    @cython.locals(size=Py_ssize_t, name=bytes, content=bytes)
    cpdef int pack(self, int64_t offset_delta, int64_t timestamp_delta, bytes key, bytes value,
                   object headers) except -1

    @cython.locals(row=Py_ssize_t, count=Py_ssize_t, flags="const uint8_t *")
    cpdef Py_ssize_t pack_kept(self, RecordWalker walker, bytes kept, int64_t base_timestamp) except -1

    @cython.locals(size=Py_ssize_t, headers_size=Py_ssize_t)
    cdef int _pack_walked(self, RecordWalker walker, int64_t timestamp_delta) except -1

    @cython.locals(first=Py_ssize_t, before=Py_ssize_t, at=Py_ssize_t, base=int64_t,
                   timestamp=int64_t)
    cpdef Py_ssize_t pack_rows(self, ArrowRows rows, Py_ssize_t row, Py_ssize_t limit) except -1

    @cython.locals(key_size=Py_ssize_t, value_size=Py_ssize_t, size=Py_ssize_t,
                   header_count=Py_ssize_t, header_row=Py_ssize_t)
    cdef int _pack_row(self, ArrowRows rows, Py_ssize_t row, int64_t offset_delta,
                       int64_t timestamp_delta) except -1

    @cython.locals(total=Py_ssize_t, size=Py_ssize_t)
    cdef Py_ssize_t _headers_size(self, ArrowRows rows, Py_ssize_t row, Py_ssize_t count) except -1
