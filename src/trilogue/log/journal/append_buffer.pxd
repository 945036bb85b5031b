# Types for append_buffer.py when it is compiled; the .py alone defines what happens.
cimport cython
from libc.stdint cimport int64_t

from trilogue.log.journal.window cimport Window


cdef Py_ssize_t _PREFIX_SIZE
cdef Py_ssize_t _MAX_SIZE


cdef class AppendBuffer:
    cdef public Window window
    cdef public bint is_scheduled
    cdef public object refusal
    cdef object _scheduler

    @cython.locals(size=Py_ssize_t, window=Window)
    cpdef Window add_entry(self, int64_t partition_id, int64_t owner_epoch, object entry,
                           bint deferred=*)

    @cython.locals(window=Window)
    cpdef on_commit(self, object callback)
