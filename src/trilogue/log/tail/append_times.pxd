# Types for append_times.py when it is compiled; the .py alone defines what happens.
from libc.stdint cimport int64_t


cdef class AppendTimes:
    cdef public int64_t newest
    cdef int64_t _step_end
    cdef public object _ends
    cdef object _times

    cpdef note(self, int64_t end, int64_t append_time_ms)
