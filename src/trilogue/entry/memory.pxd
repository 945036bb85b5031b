# The compiled version of memory.py. It does not check bounds, and the build turns Cython's
# bounds checks off: the callers check.
from cpython.buffer cimport Py_buffer, PyBuffer_IsContiguous
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from trilogue.entry.header cimport (
    ATTRIBUTES_AT, BASE_OFFSET_AT, BASE_SEQUENCE_AT, BASE_TIMESTAMP_AT, CHECKSUM_AT,
    LAST_OFFSET_DELTA_AT, LENGTH_AT, LENGTH_PREFIX, MAGIC, MAGIC_AT, MAX_TIMESTAMP_AT, OWNER_EPOCH_AT,
    PRODUCER_EPOCH_AT, PRODUCER_ID_AT, RECORD_COUNT_AT, STAMP_SIZE
)


cdef extern from *:
    """
    #include <string.h>

    #if defined(__x86_64__) && defined(__GNUC__)
    __attribute__((target("sse4.2")))
    static long long crc32c_by_instruction(const unsigned char *data, Py_ssize_t size) {
        unsigned long long crc = 0xFFFFFFFFu, word;
        for (; size >= 8; data += 8, size -= 8) {
            memcpy(&word, data, 8);
            crc = __builtin_ia32_crc32di(crc, word);
        }
        while (size-- > 0) crc = __builtin_ia32_crc32qi((unsigned)crc, *data++);
        return (long long)((unsigned)crc ^ 0xFFFFFFFFu);
    }

    static long long crc32c_of_few(const unsigned char *data, Py_ssize_t size) {
        return __builtin_cpu_supports("sse4.2") ? crc32c_by_instruction(data, size) : -1;
    }
    #else
    static long long crc32c_of_few(const unsigned char *data, Py_ssize_t size) {
        (void)data; (void)size;
        return -1;
    }
    #endif
    """
    int64_t crc32c_of_few(const uint8_t *data, Py_ssize_t size) noexcept nogil


cdef inline int64_t quick_crc32c(object view, Py_ssize_t pos) except -2:
    cdef Py_ssize_t size = PyMemoryView_GET_BUFFER(view).len - pos
    if size > 1024:  # a longer one goes through the instruction's latency, the package does not
        return -1
    return crc32c_of_few(bytes_of(view) + pos, size)


cdef inline uint32_t load32(const uint8_t *data, Py_ssize_t pos) noexcept nogil:
    return (<uint32_t>data[pos] << 24) | (<uint32_t>data[pos + 1] << 16) \
        | (<uint32_t>data[pos + 2] << 8) | <uint32_t>data[pos + 3]


cdef inline int64_t load64(const uint8_t *data, Py_ssize_t pos) noexcept nogil:
    return <int64_t>((<uint64_t>load32(data, pos) << 32) | <uint64_t>load32(data, pos + 4))


cdef inline int16_t load16(const uint8_t *data, Py_ssize_t pos) noexcept nogil:
    return <int16_t>((<uint32_t>data[pos] << 8) | <uint32_t>data[pos + 1])


cdef inline void store32(uint8_t *data, Py_ssize_t pos, int32_t value) noexcept nogil:
    cdef int i
    for i in range(4):
        data[pos + i] = <uint8_t>(<uint32_t>value >> (24 - 8 * i))


cdef inline void store64(uint8_t *data, Py_ssize_t pos, int64_t value) noexcept nogil:
    cdef int i
    for i in range(8):
        data[pos + i] = <uint8_t>(<uint64_t>value >> (56 - 8 * i))


cdef inline uint8_t *bytes_of(object view) except NULL:
    cdef Py_buffer *held
    if not isinstance(view, memoryview):
        raise TypeError("a memoryview is needed")
    held = PyMemoryView_GET_BUFFER(view)
    if held.itemsize != 1 or not PyBuffer_IsContiguous(held, c"C") or held.buf == NULL:
        raise BufferError("a contiguous view of bytes is needed")
    return <uint8_t *>held.buf


cdef inline uint8_t *writable_bytes_of(object view) except NULL:
    cdef uint8_t *data = bytes_of(view)
    if PyMemoryView_GET_BUFFER(view).readonly:
        raise BufferError("a writable view is needed")
    return data


cdef inline tuple header_fields(object view, Py_ssize_t pos):
    cdef const uint8_t *data = bytes_of(view) + pos
    return (
        load64(data, BASE_OFFSET_AT), LENGTH_PREFIX + <int64_t><int32_t>load32(data, LENGTH_AT),
        <int32_t>load32(data, OWNER_EPOCH_AT), <int><signed char>data[MAGIC_AT],
        load32(data, CHECKSUM_AT), load16(data, ATTRIBUTES_AT),
        <int32_t>load32(data, LAST_OFFSET_DELTA_AT), load64(data, BASE_TIMESTAMP_AT),
        load64(data, MAX_TIMESTAMP_AT), load64(data, PRODUCER_ID_AT),
        load16(data, PRODUCER_EPOCH_AT), <int32_t>load32(data, BASE_SEQUENCE_AT),
        <int32_t>load32(data, RECORD_COUNT_AT),
    )


cdef inline tuple walked_fields(object view, Py_ssize_t pos):
    cdef const uint8_t *data = bytes_of(view) + pos
    return (
        pos, LENGTH_PREFIX + <int64_t><int32_t>load32(data, LENGTH_AT),
        load64(data, BASE_OFFSET_AT), <int32_t>load32(data, LAST_OFFSET_DELTA_AT),
        load64(data, MAX_TIMESTAMP_AT), load64(data, PRODUCER_ID_AT),
        load16(data, PRODUCER_EPOCH_AT), <int32_t>load32(data, BASE_SEQUENCE_AT),
    )


cdef inline object bytes_at(const uint8_t *data, Py_ssize_t pos, Py_ssize_t size):
    if size < 0:
        return None
    return PyBytes_FromStringAndSize(<const char *>data + pos, size)


cdef inline void copy(uint8_t *target, Py_ssize_t at, const uint8_t *data, Py_ssize_t pos,
                      Py_ssize_t size) noexcept nogil:
    memcpy(target + at, data + pos, <size_t>size)


cdef inline int copy_view(object target, Py_ssize_t at, object data) except -1:
    cdef const uint8_t *source = bytes_of(data)
    cdef uint8_t *room = writable_bytes_of(target)
    cdef Py_ssize_t size = PyMemoryView_GET_BUFFER(data).len
    if at < 0 or size > PyMemoryView_GET_BUFFER(target).len - at:
        raise ValueError("no room for the bytes to copy")
    memcpy(room + at, source, <size_t>size)
    return 0


cdef inline int stamp_header(object entry, int64_t base_offset, Py_ssize_t size,
                             int64_t owner_epoch) except -1:
    cdef uint8_t *data = writable_bytes_of(entry)
    if PyMemoryView_GET_BUFFER(entry).len < STAMP_SIZE:
        raise ValueError("no room for an entry's header")
    store64(data, BASE_OFFSET_AT, base_offset)
    store32(data, LENGTH_AT, <int32_t>(size - LENGTH_PREFIX))
    store32(data, OWNER_EPOCH_AT, <int32_t>owner_epoch)
    return 0


cdef inline void store16(uint8_t *data, Py_ssize_t pos, int value) noexcept nogil:
    data[pos] = <uint8_t>(<uint32_t>value >> 8)
    data[pos + 1] = <uint8_t>value


cdef inline void write_header(uint8_t *out, int64_t size, int attributes, int64_t offsets,
                              int64_t records, int64_t time_ms) noexcept nogil:
    store64(out, BASE_OFFSET_AT, 0)
    store32(out, LENGTH_AT, <int32_t>(size - LENGTH_PREFIX))
    store32(out, OWNER_EPOCH_AT, -1)
    out[MAGIC_AT] = MAGIC
    store32(out, CHECKSUM_AT, 0)
    store16(out, ATTRIBUTES_AT, attributes)
    store32(out, LAST_OFFSET_DELTA_AT, <int32_t>(offsets - 1))
    store64(out, BASE_TIMESTAMP_AT, time_ms)
    store64(out, MAX_TIMESTAMP_AT, time_ms)
    store64(out, PRODUCER_ID_AT, -1)
    store16(out, PRODUCER_EPOCH_AT, -1)
    store32(out, BASE_SEQUENCE_AT, -1)
    store32(out, RECORD_COUNT_AT, <int32_t>records)


cdef inline bytearray new_bytes(Py_ssize_t size):
    return PyByteArray_FromStringAndSize(NULL, size)


cdef inline int32_t *int32_of(bytearray room) noexcept:
    return <int32_t *>PyByteArray_AS_STRING(room)


cdef inline int64_t *int64_of(bytearray room) noexcept:
    return <int64_t *>PyByteArray_AS_STRING(room)


cdef inline const int32_t *int32_at(object view) except NULL:
    return <const int32_t *>bytes_of(view)


cdef inline const int64_t *int64_at(object view) except NULL:
    return <const int64_t *>bytes_of(view)


cdef inline const uint8_t *of_bytes(bytes value) noexcept:
    return <const uint8_t *>PyBytes_AS_STRING(value)
