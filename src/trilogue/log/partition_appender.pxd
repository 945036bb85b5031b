# Types for partition_appender.py when it is compiled; the .py alone defines what happens.
cimport cython
from libc.stdint cimport int64_t

from trilogue.log.journal.append_buffer cimport AppendBuffer
from trilogue.log.journal.window cimport Window
from trilogue.log.tail.append_times cimport AppendTimes
from trilogue.log.tail.tail cimport Tail


cdef Py_ssize_t _MAX_ENTRY
cdef int _FORMAT_SHIFT
cdef int _TRANSACTIONAL
cdef Py_ssize_t _ATTRIBUTES
cdef Py_ssize_t _LAST_OFFSET_DELTA
cdef Py_ssize_t _MAX_TIMESTAMP


cdef class PartitionAppender:
    cdef public int64_t partition_id
    cdef public int64_t owner_epoch
    cdef public bint acks_from_memory
    cdef public int64_t end_offset
    cdef public int64_t high_watermark
    cdef public int64_t end_position
    cdef public int64_t durable_position
    cdef public tuple previous_watermark
    cdef public Tail tail
    cdef public int tail_formats
    cdef public AppendTimes append_times
    cdef public object transactions
    cdef public dict watchers
    cdef AppendBuffer _buffer
    cdef Window _window

    @cython.locals(base_offset=int64_t, attributes=int, fields=tuple)
    cpdef append(self, object entry, object header)

    @cython.locals(buffer=AppendBuffer, tail=Tail, window=Window, size=Py_ssize_t,
                   base_offset=int64_t, owner_epoch=int64_t)
    cpdef int64_t append_plain(self, object entry, int attributes, int64_t last_offset_delta,
                               int64_t max_timestamp) except -1

    cpdef mark(self)

    cpdef advance(self, tuple mark, int64_t append_time_ms)

    cpdef wake(self)
