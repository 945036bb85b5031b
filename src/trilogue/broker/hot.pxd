# Types for hot.py when it is compiled; the .py alone says what happens.
cimport cython
from libc.stdint cimport int64_t

from trilogue.entry.memory cimport bytes_of
from trilogue.entry.walk cimport checked_fields


cdef Py_ssize_t _HEADER_SIZE
cdef Py_ssize_t _PRODUCER_AT
cdef int _TRANSACTIONAL
cdef Py_ssize_t _ATTRIBUTES


cdef class HotPartition:
    cdef public object log
    cdef public bint prepares
    cdef public Py_ssize_t _simple_size_max

    @cython.locals(size=Py_ssize_t, fields=tuple, attributes=int)
    cpdef int64_t append_plain(self, object records) except -2
