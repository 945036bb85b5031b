# Types for batch_reader.py when it is compiled; the behaviour is in the .py alone.
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from trilogue.wire.fields cimport Fields
from trilogue.wire.pulsar.message_codec cimport properties_of
from trilogue.wire.memory cimport bytes_at, bytes_of, signed32, uint32_at


cdef int32_t _PROPERTIES, _PARTITION_KEY, _PAYLOAD_SIZE, _COMPACTED_OUT, _EVENT_TIME, _KEY_IS_B64
cdef int32_t _ORDERING_KEY, _SEQUENCE_ID, _NULL_VALUE, _NULL_KEY


@cython.final
cdef class BatchReader:
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
