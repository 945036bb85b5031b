# Types for request_latency.py when it is compiled; the .py alone defines what happens.
cimport cython


cdef class LatencyHistogram:
    cdef public tuple bounds
    cdef public list counts
    cdef public double total

    @cython.locals(at=Py_ssize_t)
    cpdef observe(self, double value, Py_ssize_t weight=*)
