# Types for send_turn.py when it is compiled; the .py alone defines what happens.
cimport cython
from libc.stdint cimport int64_t, uint64_t

from trilogue.entry.pulsar.pulsar_entry cimport SentSection, build_checked
from trilogue.gateway.transport_writer cimport TransportWriter
from trilogue.wire.pulsar.message_codec cimport SendHead, encode_send_receipt


cdef uint64_t _LEDGER_ID
cdef Py_ssize_t _SECTION_AT


cdef class SendTurn:
    cdef readonly bint is_open
    cdef readonly bint is_limited
    cdef readonly uint64_t producer_id
    cdef object _connection
    cdef object _producer
    cdef SentSection _section
    cdef list _receipts
    cdef list _messages
    cdef list _sections
    cdef int64_t _first_id
    cdef Py_ssize_t _taken
    cdef int64_t _message_count
    cdef int64_t _size
    cdef bint _is_encrypted
    cdef bint _is_sent_on

    cpdef begin(self, object producer)

    @cython.locals(section=SentSection)
    cpdef add_message(self, SendHead head, object frame)

    @cython.locals(receipts=list, joined=bytes)
    cpdef end(self, TransportWriter writer)

    cdef _hand_out(self)

    cdef _forget(self)
