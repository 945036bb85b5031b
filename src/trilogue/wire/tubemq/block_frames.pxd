# Types for block_frames.py when it is compiled; the .py alone defines what happens.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from trilogue.wire.frames cimport ReceiveBuffer
from trilogue.wire.memory cimport copy, signed32, uint32_at, writable_bytes_of


cdef int64_t _TOKEN
cdef int64_t _MAX_BLOCKS
cdef Py_ssize_t _HEAD_SIZE
cdef Py_ssize_t _SERIAL_SIZE
cdef Py_ssize_t _SERIAL_AT
cdef Py_ssize_t _BLOCKS_AT
cdef Py_ssize_t _LENGTH_SIZE


cdef class BlockFrames(ReceiveBuffer):
    cdef Py_ssize_t _blocks
    cdef Py_ssize_t _joined
    cdef Py_ssize_t _length
    cdef Py_ssize_t _scan

    @cython.locals(start=Py_ssize_t, first=Py_ssize_t, stop=Py_ssize_t, serial=Py_ssize_t,
                   token=int64_t, blocks=int64_t, length=int64_t, data="uint8_t *")
    cpdef next(self)

    @cython.locals(end=Py_ssize_t, begin=Py_ssize_t, room=Py_ssize_t, joined=Py_ssize_t,
                   scan=Py_ssize_t, length=Py_ssize_t, stop=Py_ssize_t)
    cdef _join(self)
