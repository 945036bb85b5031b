# Types for pressure.py when it is compiled; the .py alone defines what happens.
cimport cython
from libc.stdint cimport int64_t

from trilogue.log.journal.commit_cycle cimport CommitCycle


cdef class LogPressure:
    cdef public int64_t sealed_entries
    cdef public bint is_stuck
    cdef object _journal
    cdef CommitCycle _cycle
    cdef object _budget
    cdef Py_ssize_t _queued_max
    cdef double _bytes_high
    cdef double _entries_high

    cpdef bint is_high(self) except -1

    @cython.locals(entries=int64_t)
    cpdef bint is_tail_full(self) except -1
