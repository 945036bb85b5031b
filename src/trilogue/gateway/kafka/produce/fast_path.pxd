# Types for fast_path.py when it is compiled; the .py alone defines what happens.
cimport cython
from libc.stdint cimport int32_t, uint8_t, uint32_t

from trilogue.gateway.kafka.produce.durable_replies cimport DurableReplies
from trilogue.gateway.kafka.produce.request_template cimport RequestTemplate
from trilogue.log.pressure cimport LogPressure
from trilogue.wire.memory cimport bytes_at, bytes_of, signed32, uint32_at


cdef Py_ssize_t _HEADER_MIN
cdef Py_ssize_t _PREFIX_AT
cdef Py_ssize_t _EXACT
cdef Py_ssize_t _UNSAMPLED


cdef class ProduceFastPath:
    cdef public tuple prefixes
    cdef public object metering
    cdef object _find_api
    cdef object _find_template
    cdef object _gateway
    cdef object _handler
    cdef LogPressure _pressure
    cdef object _quotas
    cdef DurableReplies _replies

    @cython.locals(size=Py_ssize_t, number=uint32_t)
    cpdef take_frame(self, object frame)

    @cython.locals(size=Py_ssize_t, data="const uint8_t *", start=Py_ssize_t,
                   correlation_id=int32_t, template=RequestTemplate,
                   count=Py_ssize_t)
    cdef bint _append_by_template(self, object api, object frame) except -1

    cpdef end_iteration(self)
