# Types for hot.py when it is compiled; the .py alone says what happens.
cimport cython
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from trilogue.entry.memory cimport bytes_of, store32, store64, writable_bytes_of


cdef Py_ssize_t _PREFIX_SIZE
cdef Py_ssize_t _MAX_ENTRY
cdef Py_ssize_t _WORTH_COMBINING
cdef int _FORMAT_SHIFT
cdef int _TRANSACTIONAL
cdef Py_ssize_t _ATTRIBUTES
cdef Py_ssize_t _LAST_OFFSET_DELTA
cdef Py_ssize_t _MAX_TIMESTAMP


# The compiled twins of hot_memory.py.

cdef inline int put(object target, Py_ssize_t at, object data) except -1:
    cdef const unsigned char *source = bytes_of(data)
    cdef unsigned char *room = writable_bytes_of(target)
    cdef Py_ssize_t size = PyMemoryView_GET_BUFFER(data).len
    if at < 0 or size > PyMemoryView_GET_BUFFER(target).len - at:
        raise ValueError("no room for what is to be put there")
    memcpy(room + at, source, <size_t>size)
    return 0


cdef inline int put_prefix(object target, Py_ssize_t at, int64_t partition_id,
                           int64_t owner_epoch) except -1:
    cdef unsigned char *data = writable_bytes_of(target)
    if at < 0 or PyMemoryView_GET_BUFFER(target).len - at < 16:
        raise ValueError("no room for a prefix")
    store64(data, at, partition_id)
    store32(data, at + 8, <int32_t>owner_epoch)
    store32(data, at + 12, 0)
    return 0


cdef inline int put_stamp(object target, int64_t base_offset, Py_ssize_t size,
                          int64_t owner_epoch) except -1:
    cdef unsigned char *data = writable_bytes_of(target)
    if PyMemoryView_GET_BUFFER(target).len < 16:
        raise ValueError("this is no entry")
    store64(data, 0, base_offset)
    store32(data, 8, <int32_t>(size - 12))
    store32(data, 12, <int32_t>owner_epoch)
    return 0


cdef class HotWindow:
    cdef public object view
    cdef public Py_ssize_t used
    cdef public Py_ssize_t limit
    cdef public Py_ssize_t entry_count
    cdef public list facts
    cdef public list known
    cdef public list followers
    cdef public list marks
    cdef public list waiters

    @cython.locals(marks=list)
    cpdef close(self)

    cpdef advance(self)


cdef class HotJournal:
    cdef public int64_t durable_ms
    cdef public object refusal
    cdef public HotWindow _filling
    cdef public bint _armed
    cdef public object _failure

    @cython.locals(size=Py_ssize_t, window=HotWindow, start=Py_ssize_t, end=Py_ssize_t,
                   checked_from=Py_ssize_t)
    cpdef HotWindow add_entry(self, int64_t partition_id, int64_t owner_epoch, object entry,
                              bint patient=*)

    @cython.locals(window=HotWindow)
    cpdef on_commit(self, object callback)


cdef class HotTail:
    cdef public int64_t start
    cdef public int64_t end
    cdef public object _chunk
    cdef public Py_ssize_t _fill
    cdef public Py_ssize_t _room
    cdef public int64_t _latest
    cdef public int64_t _next_mark

    @cython.locals(fill=Py_ssize_t, after=Py_ssize_t, position=int64_t)
    cpdef append(self, object entry, Py_ssize_t size, int64_t base_offset, int64_t owner_epoch,
                 int64_t max_timestamp)


cdef class HotAppendTimes:
    cdef public int64_t newest
    cdef public int64_t _next

    cpdef note(self, int64_t end, int64_t append_ms)


cdef class HotPartition:
    cdef public int64_t partition_id
    cdef public int64_t owner_epoch
    cdef public bint patient
    cdef public int64_t high_watermark
    cdef public int64_t end_offset
    cdef public int tail_formats
    cdef public HotAppendTimes _append_times
    cdef public int64_t _end_position
    cdef public HotJournal _journal
    cdef public tuple _previous
    cdef public HotTail _tail
    cdef public object _transactions
    cdef public int64_t _visible
    cdef public dict _waiting
    cdef public HotWindow _window

    @cython.locals(journal=HotJournal, tail=HotTail, window=HotWindow, size=Py_ssize_t,
                   base_offset=int64_t, owner_epoch=int64_t, attributes=int,
                   fields=tuple)
    cpdef append(self, object entry, object header)

    cpdef mark(self)

    cpdef advance(self, tuple mark)

    cpdef wake(self)
