# The compiled version of memory.py. It trusts its arguments: the build turns Cython's own bounds
# checks off, so the caller has checked.
from cpython.buffer cimport Py_buffer, PyBuffer_IsContiguous
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef inline const uint8_t *bytes_of(object view) except NULL:
    cdef Py_buffer *held
    if not isinstance(view, memoryview):
        raise TypeError("a memoryview is needed")
    held = PyMemoryView_GET_BUFFER(view)
    if held.itemsize != 1 or not PyBuffer_IsContiguous(held, c"C") or held.buf == NULL:
        raise BufferError("a contiguous view of bytes is needed")
    return <const uint8_t *>held.buf


cdef inline uint8_t *writable_bytes_of(object view) except NULL:
    cdef const uint8_t *data = bytes_of(view)
    if PyMemoryView_GET_BUFFER(view).readonly:
        raise BufferError("a writable view is needed")
    return <uint8_t *>data


cdef inline bytes bytes_at(const uint8_t *data, Py_ssize_t pos, Py_ssize_t size):
    return PyBytes_FromStringAndSize(<const char *>data + pos, size)


cdef inline uint32_t uint32_at(const uint8_t *data, Py_ssize_t pos) noexcept nogil:
    return (<uint32_t>data[pos] << 24) | (<uint32_t>data[pos + 1] << 16) \
        | (<uint32_t>data[pos + 2] << 8) | <uint32_t>data[pos + 3]


cdef inline bytearray new_bytes(Py_ssize_t size):
    return PyByteArray_FromStringAndSize(NULL, size)


cdef inline uint8_t *room_of(bytearray room) noexcept:
    return <uint8_t *>PyByteArray_AS_STRING(room)


cdef inline void copy(uint8_t *target, Py_ssize_t at, const uint8_t *data, Py_ssize_t pos,
                      Py_ssize_t size) noexcept:
    memcpy(target + at, data + pos, size)


cdef inline int32_t signed32(uint64_t value) noexcept nogil:
    return <int32_t><uint32_t>value


cdef inline int64_t signed64(uint64_t value) noexcept nogil:
    return <int64_t>value


cdef inline uint64_t unsigned64(int64_t value) noexcept nogil:
    return <uint64_t>value


cdef inline uint32_t truncated32(uint64_t value) noexcept nogil:
    return <uint32_t>value
