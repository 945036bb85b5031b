# Types for durable_replies.py when it is compiled; the .py alone defines what happens.
cimport cython

from trilogue.gateway.reply_slots cimport ReplySlot, ReplySlots
from trilogue.gateway.transport_writer cimport TransportWriter


cdef class CommitSlot(ReplySlot):
    cdef public bint is_last
    cdef public object problem
    cdef public list replies


cdef class DurableReplies:
    cdef object _committed
    cdef Py_ssize_t _in_flight_max
    cdef object _on_commit
    cdef CommitSlot _open
    cdef object _session
    cdef ReplySlots _slots
    cdef CommitSlot _spare
    cdef object _waiting
    cdef TransportWriter _writer

    @cython.locals(slot=CommitSlot, slots=ReplySlots)
    cpdef add(self, object reply)

    @cython.locals(last=CommitSlot)
    cpdef end_iteration(self)

    @cython.locals(slot=CommitSlot, slots=ReplySlots, writer=TransportWriter, replies=list)
    cpdef committed(self, object problem)
