# Types for singles.py when it is compiled; the .py alone says what happens.
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from trilogue.wire.fields cimport Fields
from trilogue.wire.pulsar.hot cimport properties_of
from trilogue.wire.memory cimport bytes_at, bytes_of, signed32, uint32_at


@cython.final
cdef class Singles:
    cdef object view
    cdef const uint8_t *data
    cdef Py_ssize_t pos, end
    cdef int64_t index, count, budget
    cdef Fields fields

    @cython.locals(found=list)
    cpdef list read(self, Py_ssize_t limit)

    @cython.locals(fields=Fields, size=int64_t, at=Py_ssize_t, index=int64_t, properties=tuple,
                   values=tuple)
    cdef object _next(self)
