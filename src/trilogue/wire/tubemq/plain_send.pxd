# Types for plain_send.py when it is compiled; the .py alone defines what happens.
cimport cython
from libc.stdint cimport int32_t, uint8_t, uint64_t

from trilogue.wire.memory cimport bytes_of, signed32, uint32_at


cdef Py_ssize_t _NAMES_MAX, _ENVELOPE_MIN, _BODY_AT
cdef int _METHOD, _SHIFT_MAX
cdef int _SERVICE, _VERSION, _BODY_METHOD, _TIMEOUT, _REQUEST, _CLIENT_ID, _TOPIC, _PARTITION
cdef int _DATA, _FLAG, _CHECKSUM, _ADDRESS, _MESSAGE_TYPE, _MESSAGE_TIME, _AUTH_INFO
cdef int _VISIT_TOKEN


@cython.final
cdef class PlainSend:
    cdef const uint8_t *_octets
    cdef Py_ssize_t _pos, _end
    cdef bint _is_plain
    cdef readonly int32_t serial, partition_id, flag, checksum, address
    cdef readonly uint64_t service, size
    cdef readonly bytes names
    cdef readonly object data
    cdef readonly str message_type, message_time

    @cython.locals(end=Py_ssize_t, octets="const uint8_t *", names_at=Py_ssize_t,
                   names_end=Py_ssize_t, data_at=Py_ssize_t)
    cpdef bint read(self, object frame) except -1

    @cython.locals(size=uint64_t, at=Py_ssize_t, is_whole=bint, is_send=bint)
    cdef void _read_envelope(self) noexcept

    @cython.locals(size=uint64_t, type_at=Py_ssize_t, type_end=Py_ssize_t, time_at=Py_ssize_t)
    cdef _read_attributes(self, object frame)

    @cython.locals(size=uint64_t)
    cdef void _read_login(self) noexcept

    cpdef forget(self)

    @cython.locals(value=uint64_t, shift=int, pos=Py_ssize_t, end=Py_ssize_t, byte=uint64_t,
                   octets="const uint8_t *")
    cdef uint64_t _number(self) noexcept

    cdef uint64_t _field(self, int tag) noexcept

    cdef void _skip(self, uint64_t size) noexcept
