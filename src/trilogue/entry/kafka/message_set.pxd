# Types for message_set.py when it is compiled; the .py alone defines what happens.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t

from trilogue.entry.memory cimport (
    bytes_at, bytes_of, copy, load32, load64, new_bytes, of_bytes, store32, store64,
    writable_bytes_of
)
from trilogue.entry.walk cimport RecordWalker


@cython.final
cdef class SetWalker:
    cdef object view
    cdef const uint8_t *data
    cdef readonly Py_ssize_t pos, start
    cdef Py_ssize_t stop
    cdef readonly int64_t offset, timestamp
    cdef readonly int magic, attributes
    cdef readonly Py_ssize_t key_at, key_size, value_at, value_size

    @cython.locals(pos=Py_ssize_t, room=Py_ssize_t, size=int64_t, magic=int, crc=uint32_t,
                   computed=uint32_t)
    cpdef int advance(self) except -1

    cdef int _find_contents(self, Py_ssize_t at) except -1

    @cython.locals(size=int64_t)
    cdef Py_ssize_t _size_at(self, Py_ssize_t at) except -2

    cpdef bytes key(self)

    cpdef bytes value(self)


@cython.final
cdef class SetWriter:
    cdef readonly Py_ssize_t used
    cdef readonly int magic
    cdef Py_ssize_t room
    cdef bytearray buffer
    cdef object view
    cdef uint8_t *data

    cpdef object written(self)

    cpdef object clear(self)

    @cython.locals(room=Py_ssize_t, buffer=bytearray, data="uint8_t *", view=object)
    cdef int reserve(self, Py_ssize_t size) except -1

    @cython.locals(at=Py_ssize_t, head=Py_ssize_t)
    cdef Py_ssize_t begin(self, int64_t offset, int64_t timestamp, int attributes,
                          Py_ssize_t size) except -1

    @cython.locals(crc=uint32_t)
    cdef int end(self, Py_ssize_t at) except -1

    @cython.locals(at=Py_ssize_t, size=Py_ssize_t)
    cpdef int put(self, int64_t offset, int64_t timestamp, int attributes, bytes key,
                  bytes value) except -1

    @cython.locals(size=Py_ssize_t)
    cdef int _put_bytes(self, bytes value) except -1

    @cython.locals(at=Py_ssize_t, size=Py_ssize_t)
    cdef int put_record(self, RecordWalker walker, int64_t base_offset, int attributes) except -1

    cdef int _put_sized(self, const uint8_t *data, Py_ssize_t pos, Py_ssize_t size) except -1

    @cython.locals(first=Py_ssize_t, before=Py_ssize_t)
    cpdef int64_t put_records(self, RecordWalker walker, int64_t from_offset, int attributes,
                              Py_ssize_t limit) except -2

    @cython.locals(count=int64_t, base_offset=int64_t, last_offset=int64_t, latest=int64_t)
    cpdef tuple put_inner(self, RecordWalker walker, int attributes)
