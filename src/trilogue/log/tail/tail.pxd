# Types for tail.py when it is compiled; the .py alone defines what happens.
cimport cython
from libc.stdint cimport int64_t

from trilogue.entry.memory cimport copy_view, stamp_header


cdef class Tail:
    cdef public int64_t start
    cdef public int64_t end
    cdef public object _budget
    cdef public object _older
    cdef public object _chunk
    cdef public int64_t _begin
    cdef public Py_ssize_t _fill
    cdef public Py_ssize_t _room
    cdef public Py_ssize_t _previous_fill
    cdef public object _index
    cdef public int64_t _latest
    cdef public int64_t _next_mark

    @cython.locals(fill=Py_ssize_t, after=Py_ssize_t, position=int64_t)
    cpdef append(self, object entry, Py_ssize_t size, int64_t base_offset, int64_t owner_epoch,
                 int64_t max_timestamp)
