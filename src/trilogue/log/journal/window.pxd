# Types for window.py when it is compiled; the .py alone defines what happens.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from trilogue.entry.memory cimport copy_view, store32, store64, writable_bytes_of


cdef Py_ssize_t _BLOCK
cdef Py_ssize_t _PREFIX_SIZE
cdef Py_ssize_t _WORTH_COMBINING
cdef Py_ssize_t _MAX_FRAME
cdef int64_t _FRAME_MAGIC
cdef int64_t _VERSION
cdef Py_ssize_t _MAGIC_AT
cdef Py_ssize_t _CHECKSUM_AT
cdef Py_ssize_t _FRAME_CHECKED_FROM
cdef Py_ssize_t _VERSION_AT
cdef Py_ssize_t _LENGTH_AT
cdef Py_ssize_t _SEQUENCE_AT
cdef Py_ssize_t _DURABLE_AT
cdef Py_ssize_t _NODE_ID_AT
cdef Py_ssize_t _NODE_EPOCH_AT
cdef Py_ssize_t _APPEND_TIME_AT
cdef Py_ssize_t _ENTRY_COUNT_AT
cdef Py_ssize_t _FACT_COUNT_AT
cdef Py_ssize_t _FACTS_BEGIN_AT
cdef Py_ssize_t _LAST_WORD_AT


cdef class Window:
    cdef public object view
    cdef public Py_ssize_t used
    cdef public Py_ssize_t limit
    cdef public Py_ssize_t entry_count
    cdef public Py_ssize_t fact_count
    cdef public list facts
    cdef public list known
    cdef public list listeners
    cdef public list marks
    cdef public list callbacks
    cdef public int64_t sequence
    cdef public int64_t append_time_ms

    cpdef reset(self)

    @cython.locals(start=Py_ssize_t, entry_at=Py_ssize_t, size=Py_ssize_t, data="uint8_t *")
    cpdef add_entry(self, int64_t partition_id, int64_t owner_epoch, object entry)

    @cython.locals(marks=list)
    cpdef close(self)

    cpdef advance(self)

    @cython.locals(end=Py_ssize_t, facts_at=Py_ssize_t, size=Py_ssize_t)
    cpdef seal(self, object seed, int64_t flags, int64_t sequence, int64_t durable_through,
               int64_t node_id, int64_t node_epoch, int64_t append_time_ms)

    @cython.locals(data="uint8_t *", start=Py_ssize_t, checksum=int64_t)
    cdef _write_header(self, Py_ssize_t end, object seed, int64_t flags, int64_t sequence,
                       int64_t durable_through, int64_t node_id, int64_t node_epoch,
                       Py_ssize_t facts_at)
