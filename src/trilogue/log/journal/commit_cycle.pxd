# Types for commit_cycle.py when it is compiled; the .py alone defines what happens.
cimport cython
from libc.stdint cimport int64_t

from trilogue.log.journal.append_buffer cimport AppendBuffer
from trilogue.log.journal.window cimport Window


cdef int64_t _BLOCK
cdef Py_ssize_t _IDLE_WINDOWS
cdef int64_t _SPACE_CHECK_BYTES


cdef class CommitCycle:
    cdef public Window busy
    cdef public object file
    cdef public list idle
    cdef public bint is_stopped
    cdef public bint is_closing
    cdef public bint is_seal_wanted
    cdef public bint is_dirty
    cdef public bint is_timed
    cdef public object on_durable
    cdef public int64_t last_sequence
    cdef public int64_t durable_through
    cdef public int64_t commits
    cdef public int64_t entries
    cdef public int64_t facts
    cdef public int64_t bytes_written
    cdef public int64_t unchecked_bytes
    cdef object _owner
    cdef AppendBuffer _buffer
    cdef object _submit
    cdef object _call_soon
    cdef object _now_ms
    cdef object _monotonic
    cdef object _on_commit_seconds
    cdef double _submitted_s
    cdef int64_t _file_bytes
    cdef int64_t _first_file_bytes
    cdef int64_t _file_entries
    cdef Py_ssize_t _window_bytes
    cdef Py_ssize_t _reused_bytes
    cdef object _node_id
    cdef object _node_epoch
    cdef int64_t _frame_bytes
    cdef object _kick

    cpdef schedule_commit(self, bint deferred)

    cpdef Window take_fresh(self)

    @cython.locals(buffer=AppendBuffer, window=Window)
    cpdef Window next_window(self)

    @cython.locals(window=Window)
    cpdef kick(self)

    @cython.locals(now_ms=int64_t)
    cpdef prepare(self, Window window, int flags)

    cpdef finish(self, int result)

    @cython.locals(window=Window, size=int64_t, position=int64_t, is_due=bint)
    cpdef finish_commit(self, int result)

    cpdef _apply(self, Window window)
