# Types for request_template.py when it is compiled; the .py alone defines what happens.
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from trilogue.broker.topics.plain_batch_appender cimport PlainBatchAppender
from trilogue.entry.memory cimport of_bytes, store32, store64
from trilogue.wire.memory cimport bytes_of, copy, new_bytes, room_of, signed32, uint32_at


cdef Py_ssize_t _TAGS_SIZE
cdef Py_ssize_t _CORRELATION_ID_AT
cdef Py_ssize_t _BASE_OFFSET_AT
cdef Py_ssize_t _APPEND_TIME_AT
cdef Py_ssize_t _LOG_START_AT


cdef class RequestTemplate:
    cdef public object client_id
    cdef public object _api
    cdef public bint _flexible
    cdef public bint _log_start
    cdef public Py_ssize_t _numbers_at
    cdef public bint _old_codecs
    cdef public object _resource
    cdef public bytes _response
    cdef public Py_ssize_t _start
    cdef public object _topic
    cdef public object _topic_data
    cdef public object _transactional_id

    @cython.locals(parsed=tuple, index=Py_ssize_t, partitions=tuple, base_offset=int64_t,
                   append_time_ms=int64_t, log_start=int64_t, acks_from_memory=bint,
                   plain=PlainBatchAppender)
    cpdef append(self, object gateway, object api, object frame, int64_t correlation_id,
                 object sender)

    @cython.locals(data="const uint8_t *", at=Py_ssize_t, end=Py_ssize_t, index=int32_t,
                   size=int64_t, shift=int, byte=int64_t)
    cpdef tuple parse(self, object frame)

    @cython.locals(out=bytearray, room="uint8_t *", at=Py_ssize_t, size=Py_ssize_t)
    cpdef bytearray write_response(self, int64_t correlation_id, int64_t index,
                                   int64_t base_offset, int64_t append_time_ms, int64_t log_start)
