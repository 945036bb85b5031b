# Types for columns.py when it is compiled; the .py alone defines what happens.
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from trilogue.entry.memory cimport copy, int32_of, int64_of, new_bytes, writable_bytes_of
from trilogue.entry.walk cimport RecordWalker


cdef int64_t _MAX_MILLISECONDS

cdef int64_t microseconds(int64_t milliseconds) noexcept


@cython.final
cdef class ByteColumn:
    cdef readonly Py_ssize_t count, null_count, used
    cdef readonly bytearray offsets, validity, values
    cdef Py_ssize_t rows, room
    cdef int32_t *ends
    cdef uint8_t *bits
    cdef uint8_t *data

    @cython.locals(row=Py_ssize_t)
    cdef int append(self, const uint8_t *data, Py_ssize_t pos, Py_ssize_t size) except -1

    @cython.locals(rows=Py_ssize_t, offsets=bytearray, validity=bytearray)
    cdef int _grow_rows(self) except -1

    @cython.locals(values=bytearray, room=Py_ssize_t)
    cdef int grow_data(self, Py_ssize_t needed) except -1


@cython.final
cdef class Columns:
    cdef readonly Py_ssize_t count, list_nulls
    cdef readonly bytearray offset_bytes, time_bytes, list_bytes, list_validity
    cdef readonly ByteColumn keys, values, header_keys, header_values
    cdef Py_ssize_t rows, limit
    cdef bint want_keys, want_values, want_headers
    cdef int64_t *offsets
    cdef int64_t *times
    cdef int32_t *list_ends
    cdef uint8_t *list_bits

    cpdef object expect(self, Py_ssize_t size)

    @cython.locals(size=Py_ssize_t)
    cpdef bint is_full(self) except -1

    cpdef int fill(self, RecordWalker walker, int64_t start, int64_t end) except -1

    @cython.locals(row=Py_ssize_t)
    cdef int _append(self, RecordWalker walker) except -1

    @cython.locals(left=int64_t, size=Py_ssize_t)
    cdef int _append_headers(self, RecordWalker walker, Py_ssize_t row) except -1
