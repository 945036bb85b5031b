# Types for clock.py when it is compiled; the .py alone defines what happens.
cimport cython
from libc.stdint cimport int64_t


@cython.locals(now_ns=int64_t)
cpdef wall_clock_ms()
