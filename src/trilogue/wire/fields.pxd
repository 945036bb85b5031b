# Types for fields.py when it is compiled; the behaviour is in the .py alone.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from trilogue.wire.memory cimport bytes_at, bytes_of, new_bytes, room_of


cdef uint32_t FIELD_LIMIT, _VARINT, _FIXED64, _BYTES, _FIXED32, _WIRE_TYPE_MASK, _NUMBER_SHIFT
cdef uint64_t _MORE, _LOW_BITS
cdef int _VARINT_BITS_MAX, _SHORT_SIZE_MAX


@cython.final
cdef class Fields:
    cdef object view
    cdef const uint8_t *data
    cdef Py_ssize_t begin, pos, end, at, size
    cdef uint64_t value, numbers, spans, twice
    cdef uint64_t values[34]
    cdef uint32_t ats[34]
    cdef uint32_t sizes[34]

    @cython.locals(pos=Py_ssize_t, end=Py_ssize_t, shift=int, raw=uint64_t, byte=uint64_t)
    cdef uint64_t varint(self) except? 0

    @cython.locals(pos=Py_ssize_t, raw=uint64_t)
    cdef inline uint32_t short(self) except? 0

    @cython.locals(tag=uint32_t, kind=uint32_t, size=int64_t)
    cdef uint32_t advance(self) except? 0

    @cython.locals(tag=uint32_t, number=uint32_t, kind=uint32_t, bit=uint64_t)
    cdef int scan(self, Py_ssize_t pos, Py_ssize_t end) except -1

    cdef inline bint has_number(self, int number) noexcept
    cdef inline bint has_span(self, int number) noexcept
    cdef inline uint64_t number(self, int number, uint64_t default) noexcept
    cdef inline uint64_t needed(self, int number) except? 0

    @cython.locals(at=Py_ssize_t)
    cdef int into(self, int number) except -1

    cdef object octets(self, int number)
    cdef object text(self, int number)


cdef str text_of(bytes octets)

@cython.locals(size=int)
cdef int size_of(uint64_t value) noexcept


@cython.final
cdef class Room:
    cdef bytearray room
    cdef uint8_t *data
    cdef Py_ssize_t pos

    cdef inline void varint(self, uint64_t value) noexcept
    cdef inline void byte(self, uint32_t value) noexcept
    cdef void uint32(self, uint32_t value) noexcept
    cdef inline void field(self, int tag, uint64_t value) noexcept

    cdef bytes written(self)
