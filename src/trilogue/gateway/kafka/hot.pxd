# Types for hot.py when it is compiled; the .py alone says what happens.
cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from trilogue.broker.hot cimport HotPartition
from trilogue.entry.memory cimport store32, store64
from trilogue.gateway.hot cimport Flow, HotSession, Place
from trilogue.log.hot cimport HotJournal
from trilogue.wire.memory cimport bytes_at, bytes_of, signed32, uint32_at


cdef Py_ssize_t _HEADER_MIN
cdef Py_ssize_t _PREFIX_AT
cdef Py_ssize_t _TAGS
cdef Py_ssize_t _NUMBERS_AT_OFFSET
cdef Py_ssize_t _NUMBERS_AT_TIME
cdef Py_ssize_t _NUMBERS_AT_START


# The compiled twins of hot_memory.py.

cdef inline bytearray new_copy(bytes data):
    return PyByteArray_FromStringAndSize(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


cdef inline void put32(bytearray out, Py_ssize_t at, int64_t value) noexcept:
    store32(<uint8_t *>PyByteArray_AS_STRING(out), at, <int32_t>value)


cdef inline void put64(bytearray out, Py_ssize_t at, int64_t value) noexcept:
    store64(<uint8_t *>PyByteArray_AS_STRING(out), at, value)


cdef class HotShape:
    cdef public bytes _answer
    cdef public object _api
    cdef public bint _flexible
    cdef public Py_ssize_t _numbers_at
    cdef public bint _old_codecs
    cdef public object _resource
    cdef public Py_ssize_t _start
    cdef public bint _starts_told
    cdef public object _topic

    @cython.locals(found=tuple, index=Py_ssize_t, partitions=tuple, base_offset=int64_t,
                   append_time_ms=int64_t, start_offset=int64_t, patient=bint, partition=HotPartition)
    cpdef take(self, object door, object api, object frame, int64_t correlation_id,
               object principal)

    @cython.locals(data="const uint8_t *", at=Py_ssize_t, end=Py_ssize_t, index=int32_t,
                   size=int64_t, shift=int, byte=int64_t)
    cpdef tuple find(self, object frame)

    @cython.locals(out=bytearray, at=Py_ssize_t)
    cpdef bytearray answer(self, int64_t correlation_id, int64_t index, int64_t base_offset,
                           int64_t append_time_ms, int64_t start)


cdef class Committing(Place):
    cdef public bint is_last
    cdef public object problem
    cdef public list replies


cdef class HotConnection(HotSession):
    cdef public object door
    cdef public object principal
    cdef public object _committing
    cdef public HotJournal _journal
    cdef public object _metering
    cdef public object _on_commit
    cdef public Committing _open
    cdef public tuple _prefixes
    cdef public Committing _spare
    cdef public Py_ssize_t _most_in_flight
    cdef public object _spoken

    @cython.locals(size=Py_ssize_t, number=uint32_t)
    cpdef frame(self, object frame)

    @cython.locals(size=Py_ssize_t, data="const uint8_t *", start=Py_ssize_t,
                   correlation_id=int32_t)
    cdef bint _take_alike(self, object api, object frame) except -1

    @cython.locals(place=Committing)
    cpdef durable(self, object taken)

    @cython.locals(last=Committing)
    cpdef turn_over(self)

    @cython.locals(place=Committing, stream=Flow, replies=list)
    cpdef _committed(self, object problem)
