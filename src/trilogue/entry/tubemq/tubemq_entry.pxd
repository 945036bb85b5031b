# Types for tubemq_entry.py when it is compiled; the .py alone defines what happens.
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from trilogue.entry.header cimport (
    BASE_OFFSET_AT, CHECKED_FROM, CHECKSUM_AT, FORMAT_AT, HEADER_SIZE, LAST_OFFSET_DELTA_AT,
    LENGTH_AT, LENGTH_PREFIX, MAGIC, MAGIC_AT, RECORD_COUNT_AT
)
from trilogue.entry.memory cimport (
    bytes_of, copy, load32, load64, new_bytes, store32, store64, writable_bytes_of, write_header
)
from trilogue.entry.tubemq.layout cimport (
    ATTRIBUTES, BLOCK_VERSION, BROKER_TIME_AT, DATA_CHECKSUM_AT, FLAGS_AT, MESSAGE_TIME_AT,
    SENT_FROM_AT, TYPED, TYPE_AT, TYPE_HASH_AT, TYPE_SIZE_AT, VERSION_AT
)
from trilogue.wire.memory cimport signed32

cdef int _TUBEMQ, _FORMAT, _FORMAT_MASK


@cython.locals(value=uint32_t, at=Py_ssize_t)
cdef int32_t _hash(bytes units) except? -1

@cython.locals(place=int64_t)
cpdef int64_t message_id(int64_t partition_id, int64_t offset) except? -1

@cython.locals(size=Py_ssize_t, actual=uint32_t, kind=bytes, code=int32_t, flags=int, time=int64_t,
               type_size=Py_ssize_t, start=Py_ssize_t, length=Py_ssize_t, out="uint8_t *",
               total=uint32_t, values=tuple, trimmed=str)
cpdef tuple build_entry(object data, int64_t flag, int64_t checksum, int32_t sent_addr,
                        str message_type, str message_time, int64_t broker_ms)

@cython.locals(size=Py_ssize_t, length=uint32_t)
cdef int _check_attributes(object view) except -1

cdef str _trimmed(str text)

cdef int64_t _time_of(str text) except? -2

@cython.locals(data="const uint8_t *", stop=Py_ssize_t, pos=Py_ssize_t, size=int64_t,
               count=int64_t, found=list, length=Py_ssize_t, base=int64_t, last=int64_t,
               at=Py_ssize_t, body=Py_ssize_t, values=tuple)
cpdef object pick(object entries, int64_t partition_id, int64_t offset, object hashes,
                  int64_t size_max, int64_t count_max, object texts=*)

cdef bint _passes(const uint8_t *data, Py_ssize_t pos, object hashes) except -1

@cython.locals(length=int64_t)
cdef Py_ssize_t _entry_length(const uint8_t *data, Py_ssize_t pos, Py_ssize_t stop) except -1

@cython.locals(size=Py_ssize_t)
cdef Py_ssize_t _data_at(const uint8_t *data, Py_ssize_t pos, Py_ssize_t length) except -1
