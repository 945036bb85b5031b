# Types for hashes.py when it is compiled; the .py alone defines what happens.
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from trilogue.entry.memory cimport int32_at, int32_of, new_bytes, of_bytes
from trilogue.entry.pack cimport ByteInput


cdef uint64_t _SEED, _FACTOR, _MASK32, _MASK31

cpdef int64_t murmur2(bytes key) except -1

@cython.locals(room=bytearray, numbers="int32_t *", row=Py_ssize_t, size=Py_ssize_t)
cpdef bytearray assign_partitions(ByteInput keys, Py_ssize_t rows, int64_t partitions)

@cython.locals(order_room=bytearray, ends_room=bytearray, given="const int32_t *", order="int32_t *",
               ends="int32_t *", row=Py_ssize_t, at=Py_ssize_t)
cpdef tuple group_rows(object numbers, Py_ssize_t rows, Py_ssize_t partitions)

@cython.locals(value=uint64_t, block=uint64_t, end=Py_ssize_t)
cdef int64_t _hash(const uint8_t *data, Py_ssize_t pos, Py_ssize_t size) noexcept

@cython.locals(number=uint64_t, at=int)
cdef uint64_t _load(const uint8_t *data, Py_ssize_t pos, int size) noexcept
