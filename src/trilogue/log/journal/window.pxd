# Types for window.py when it is compiled; the .py alone defines what happens.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from trilogue.entry.memory cimport copy_view, store32, store64, writable_bytes_of


cdef Py_ssize_t _PREFIX_SIZE
cdef Py_ssize_t _WORTH_COMBINING


cdef class Window:
    cdef public object view
    cdef public Py_ssize_t used
    cdef public Py_ssize_t limit
    cdef public Py_ssize_t entry_count
    cdef public Py_ssize_t fact_count
    cdef public list facts
    cdef public list known
    cdef public list listeners
    cdef public list marks
    cdef public list callbacks
    cdef public int64_t sequence
    cdef public int64_t append_time_ms

    @cython.locals(start=Py_ssize_t, entry_at=Py_ssize_t, size=Py_ssize_t, data="uint8_t *")
    cpdef add_entry(self, int64_t partition_id, int64_t owner_epoch, object entry)

    @cython.locals(marks=list)
    cpdef close(self)

    cpdef advance(self)
