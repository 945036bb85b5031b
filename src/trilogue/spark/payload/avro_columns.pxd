# Types for avro_columns.py when it is compiled; the .py alone defines what happens.
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from trilogue.entry.memory cimport bytes_at, copy, int32_of, int64_of, new_bytes, writable_bytes_of
from trilogue.entry.pack cimport ByteInput


cdef int _BOOLEAN, _NUMBER, _FIXED, _STRING, _BYTES, _FIXED_BYTES, _DECIMAL, _FIXED_DECIMAL
cdef int _RECORD, _ARRAY, _MAP, _NO_UNION, _LONG_BYTES_MAX
cdef uint64_t _MASK64
cdef Py_ssize_t _FIRST_ROOM


@cython.final
cdef class AvroColumn:
    cdef readonly int kind
    cdef readonly Py_ssize_t count, null_count, used
    cdef readonly list children
    cdef readonly bytearray validity, value_room, end_room, buffer
    cdef Py_ssize_t width, value_bytes, rows, room
    cdef int64_t low, high, factor
    cdef object bound
    cdef bint has_values, has_ends
    cdef int branches, null_branch
    cdef uint8_t *bits
    cdef uint8_t *values
    cdef int32_t *values32
    cdef int64_t *values64
    cdef int32_t *ends
    cdef uint8_t *data

    @cython.locals(child=AvroColumn)
    cpdef object clear(self)

    @cython.locals(branch=int64_t, row=Py_ssize_t)
    cdef int read(self, AvroReader reader) except -1

    @cython.locals(kind=int, pos=Py_ssize_t)
    cdef int _read_atom(self, AvroReader reader, Py_ssize_t row) except -1

    @cython.locals(child=AvroColumn)
    cdef int _read_nested(self, AvroReader reader, Py_ssize_t row) except -1

    @cython.locals(row=Py_ssize_t, child=AvroColumn)
    cdef int append_null(self) except -1

    @cython.locals(row=Py_ssize_t, child=AvroColumn)
    cdef int truncate(self, Py_ssize_t count) except -1

    @cython.locals(number=int64_t)
    cdef int _read_number(self, AvroReader reader, Py_ssize_t row) except -1

    @cython.locals(size=int64_t, pos=Py_ssize_t)
    cdef int _read_bytes(self, AvroReader reader, Py_ssize_t row) except -1

    @cython.locals(size=int64_t, pos=Py_ssize_t, number=object)
    cdef int _read_decimal(self, AvroReader reader, Py_ssize_t row) except -1

    @cython.locals(count=int64_t, child=AvroColumn)
    cdef int _read_items(self, AvroReader reader) except -1

    @cython.locals(child=AvroColumn)
    cdef int reserve(self, Py_ssize_t rows) except -1

    @cython.locals(size=Py_ssize_t)
    cdef int _allocate(self, Py_ssize_t rows) except -1

    @cython.locals(old=tuple)
    cdef int _grow(self, Py_ssize_t needed) except -1

    @cython.locals(buffer=bytearray, data="uint8_t *", room=Py_ssize_t)
    cdef int _grow_data(self, Py_ssize_t needed) except -1


@cython.final
cdef class AvroReader:
    cdef AvroColumn root
    cdef const uint8_t *data
    cdef Py_ssize_t pos, end
    cdef bint bad, checks_texts

    @cython.locals(root=AvroColumn, row=Py_ssize_t, size=Py_ssize_t, before=Py_ssize_t)
    cpdef object read_all(self, ByteInput messages, Py_ssize_t rows, bint checks_texts)

    @cython.locals(pos=Py_ssize_t, raw=uint64_t, shift=int, byte=uint64_t)
    cdef int64_t read_long(self) noexcept

    @cython.locals(count=int64_t)
    cdef int64_t read_block(self) noexcept

    @cython.locals(pos=Py_ssize_t)
    cdef Py_ssize_t skip(self, int64_t size) noexcept


cdef int _is_text(AvroReader reader, Py_ssize_t pos, Py_ssize_t size) except -1

cdef int _set_bit(uint8_t *bits, Py_ssize_t row, int value) noexcept
