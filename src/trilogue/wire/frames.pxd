# Types for frames.py when it is compiled; the .py alone says what happens.
cimport cython
from libc.stdint cimport uint8_t

from trilogue.wire.memory cimport bytes_of, signed32, uint32_at


cdef Py_ssize_t _PREFIX
cdef Py_ssize_t _ROOM


cdef class ReceiveBuffer:
    cdef public object _aside
    cdef public object _buffer
    cdef public Py_ssize_t _capacity
    cdef public Py_ssize_t _end
    cdef public Py_ssize_t _filled
    cdef public Py_ssize_t _start
    cdef public Py_ssize_t limit

    cpdef get_buffer(self)

    cpdef received(self, Py_ssize_t count)

    cpdef bint is_full(self)


cdef class Int32Frames(ReceiveBuffer):
    @cython.locals(start=Py_ssize_t, stop=Py_ssize_t, length=Py_ssize_t, data="const uint8_t *")
    cpdef next(self)
