# Types for send_fast_path.py when it is compiled; the .py alone defines what happens.
cimport cython
from libc.stdint cimport uint64_t

from trilogue.gateway.pulsar.non_persistent.send_turn cimport SendTurn
from trilogue.gateway.transport_writer cimport TransportWriter
from trilogue.wire.pulsar.message_codec cimport SendHead


cdef class SendFastPath:
    cdef object _connection
    cdef SendHead _head
    cdef bint _is_handled
    cdef dict _others
    cdef object _process_frame
    cdef dict _producers
    cdef SendTurn _turn
    cdef TransportWriter _writer

    @cython.locals(head=SendHead, turn=SendTurn)
    cpdef take_frame(self, object frame)

    @cython.locals(turn=SendTurn)
    cpdef end_iteration(self)

    @cython.locals(turn=SendTurn)
    cdef bint _begin(self, uint64_t producer_id) except -1
