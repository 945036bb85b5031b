# Types for plain_batch_appender.py when it is compiled; the .py alone defines what happens.
cimport cython
from libc.stdint cimport int64_t

from trilogue.entry.header cimport HEADER_SIZE, PRODUCER_ID_AT
from trilogue.entry.memory cimport bytes_of
from trilogue.entry.walk cimport checked_fields


cdef int _TRANSACTIONAL
cdef Py_ssize_t _ATTRIBUTES


cdef class PlainBatchAppender:
    cdef public Py_ssize_t size_max
    cdef public Py_ssize_t entry_size_max
    cdef public Py_ssize_t memory_size_max
    cdef object _log

    @cython.locals(size=Py_ssize_t, fields=tuple, attributes=int)
    cpdef int64_t append(self, object records) except -2

    cpdef int64_t append_entry(self, object entry, object header, Py_ssize_t size) except -2

    cpdef int64_t append_to_memory(self, object entry, object header, Py_ssize_t size) except -2

    @cython.locals(fields=tuple)
    cdef int64_t _append(self, object entry, object header, Py_ssize_t size,
                         Py_ssize_t size_max) except -2
