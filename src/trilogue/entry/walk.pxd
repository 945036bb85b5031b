# Types for walk.py when it is compiled; the .py alone defines what happens.
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from trilogue.entry.header cimport (
    BASE_OFFSET_AT, CHECKED_FROM, FORMAT_AT, HEADER_SIZE, LENGTH_AT, LENGTH_PREFIX, MAGIC, MAGIC_AT,
    OWNER_EPOCH_AT, SMALLEST_RECORD
)
from trilogue.entry.memory cimport (
    bytes_at, bytes_of, header_fields, load32, quick_crc32c, store32, store64, walked_fields, writable_bytes_of
)


cdef int64_t _MAX_INT64
cdef int _CODEC_MASK, _LAST_CODEC, _TRANSACTIONAL
cdef int _FOREIGN_ATTRIBUTES, _UNKNOWN_CODEC, _WRONG_COUNT
cdef int _NO_ROOM_FOR_RECORDS, _NEGATIVE_TIMESTAMP, _TIMESTAMPS_GO_BACK

cpdef object read_header(object buffer, Py_ssize_t pos=*)

@cython.locals(size=Py_ssize_t, length=int64_t, fields=tuple)
cdef tuple _header_at(object view, Py_ssize_t pos)

cpdef object check_produced(object records)

@cython.locals(fields=tuple, length=int64_t, crc=int64_t, computed=int64_t)
cpdef tuple checked_fields(object records)

cpdef int contents_fault(int attributes, int64_t last_offset_delta, int64_t base_timestamp,
                        int64_t max_timestamp, int64_t record_count, int64_t size) noexcept

@cython.locals(fault=int)
cdef int _check_contents(tuple fields) except -1

cdef object _fault_error(int fault, tuple fields)

@cython.locals(attributes=int, producer_id=int64_t, producer_epoch=int, base_sequence=int64_t)
cdef int _check_producer(tuple fields) except -1

@cython.locals(data="uint8_t *")
cpdef object set_base(object entry, int64_t base_offset, int32_t leader_epoch)

@cython.locals(data="const uint8_t *", length=int64_t, last_offset_delta=int64_t, stop=Py_ssize_t,
               room=Py_ssize_t, entry=tuple, found=list)
cpdef object walk_headers(object buffer, Py_ssize_t pos=*, object end=*, bint cut_is_end=*)

@cython.locals(data="const uint8_t *", length=int64_t, found=int, pos=Py_ssize_t, stop=Py_ssize_t)
cpdef object formats_in(object buffer)

@cython.locals(data="const uint8_t *", length=int64_t, pos=Py_ssize_t, last=Py_ssize_t, stop=Py_ssize_t)
cpdef tuple last_header(object buffer)


@cython.final
cdef class RecordWalker:
    cdef object view
    cdef const uint8_t *data
    cdef Py_ssize_t pos, stop, end
    cdef bint bad, append_time
    cdef int64_t remaining, last_offset_delta, offset_delta
    cdef int64_t base_offset, base_timestamp, max_timestamp
    cdef readonly int64_t offset, timestamp
    cdef int attributes
    cdef Py_ssize_t key_at, key_size, value_at, value_size, headers_at
    cdef int64_t header_count
    cdef public int64_t headers_max

    @cython.locals(pos=Py_ssize_t, byte=uint64_t)
    cdef inline int64_t varint(self) noexcept

    @cython.locals(pos=Py_ssize_t, byte=uint64_t, shift=int)
    cdef uint64_t _rest_of_varint(self, uint64_t raw) noexcept

    @cython.locals(size=int64_t)
    cdef inline Py_ssize_t length(self) noexcept

    @cython.locals(size=int64_t)
    cpdef int advance(self) except -1

    @cython.locals(base=int64_t)
    cdef inline void _set_timestamp(self, int64_t delta) noexcept

    cdef inline void _set_offset(self, int64_t delta) noexcept

    @cython.locals(count=int64_t, size=Py_ssize_t)
    cdef void _pass_headers(self) noexcept

    @cython.locals(count=int64_t, size=Py_ssize_t, found=list)
    cdef tuple read_headers(self)

    @cython.locals(found=list, record=tuple, headers=int64_t)
    cpdef list read_records(self, Py_ssize_t limit)

    @cython.locals(found=list)
    cpdef list read_keys(self, Py_ssize_t limit)

    cpdef int find_time(self, int64_t timestamp) except -1
