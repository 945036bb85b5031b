# Types for plain_batch_appender.py when it is compiled; the .py alone defines what happens.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from trilogue.entry.header cimport (
    ATTRIBUTES_AT, BASE_TIMESTAMP_AT, CHECKED_FROM, CHECKSUM_AT, HEADER_SIZE, LAST_OFFSET_DELTA_AT, LENGTH_AT,
    LENGTH_PREFIX, MAGIC, MAGIC_AT, MAX_TIMESTAMP_AT, PRODUCER_ID_AT, RECORD_COUNT_AT
)
from trilogue.entry.memory cimport bytes_of, load32, load64, quick_crc32c
from trilogue.entry.walk cimport contents_fault


cdef int64_t _COUNT_MAX
cdef int _TRANSACTIONAL
cdef Py_ssize_t _ATTRIBUTES


cdef class PlainBatchAppender:
    cdef public Py_ssize_t size_max
    cdef public Py_ssize_t entry_size_max
    cdef public Py_ssize_t memory_size_max
    cdef object _log

    @cython.locals(size=Py_ssize_t, data="const uint8_t *", computed=int64_t)
    cpdef int64_t append(self, object records) except -2

    cpdef int64_t append_entry(self, object entry, object header, Py_ssize_t size) except -2

    cpdef int64_t append_to_memory(self, object entry, object header, Py_ssize_t size) except -2

    @cython.locals(fields=tuple)
    cdef int64_t _append(self, object entry, object header, Py_ssize_t size,
                         Py_ssize_t size_max) except -2


@cython.locals(attributes=int64_t, count=int64_t, fault=int)
cdef bint _is_valid(const uint8_t *data, Py_ssize_t size) noexcept
