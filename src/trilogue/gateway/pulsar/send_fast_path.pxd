# Types for send_fast_path.py when it is compiled; the .py alone defines what happens.
cimport cython
from libc.stdint cimport int64_t, uint64_t

from trilogue.broker.topics.plain_batch_appender cimport PlainBatchAppender
from trilogue.entry.pulsar.pulsar_entry cimport SentSection, build_checked
from trilogue.gateway.pulsar.non_persistent.send_turn cimport SendTurn
from trilogue.gateway.transport_writer cimport ReceiptGroups, TransportWriter
from trilogue.log.pressure cimport LogPressure
from trilogue.wire.pulsar.message_codec cimport SendHead, encode_send_receipt


cdef Py_ssize_t _SECTION_AT


cdef class AppendTurn:
    cdef readonly bint is_open
    cdef readonly bint is_limited
    cdef readonly uint64_t producer_id
    cdef bint _acks_from_memory
    cdef list _answers
    cdef object _connection
    cdef ReceiptGroups _groups
    cdef uint64_t _ledger_id
    cdef int64_t _message_count
    cdef int64_t _now_ms
    cdef PlainBatchAppender _plain
    cdef LogPressure _pressure
    cdef object _producer
    cdef SentSection _section
    cdef int64_t _size

    @cython.locals(plain=PlainBatchAppender)
    cpdef bint begin(self, object producer) except -1

    @cython.locals(plain=PlainBatchAppender, section=SentSection, size=Py_ssize_t, offset=int64_t)
    cpdef bint append_message(self, SendHead head, object frame) except -1

    @cython.locals(answers=list, count=int64_t, size=int64_t)
    cpdef end(self, TransportWriter writer)

    cpdef close(self)


cdef class SendFastPath:
    cdef object _connection
    cdef ReceiptGroups _groups
    cdef SendHead _head
    cdef bint _is_handled
    cdef bint _is_traced
    cdef dict _others
    cdef object _process_frame
    cdef dict _producers
    cdef AppendTurn _stored
    cdef SendTurn _turn
    cdef TransportWriter _writer

    @cython.locals(head=SendHead, stored=AppendTurn, turn=SendTurn, producer_id=uint64_t)
    cpdef take_frame(self, object frame)

    @cython.locals(groups=ReceiptGroups)
    cpdef end_iteration(self)

    @cython.locals(stored=AppendTurn)
    cdef bint _begin_stored(self, uint64_t producer_id) except -1

    @cython.locals(turn=SendTurn)
    cdef bint _begin(self, uint64_t producer_id) except -1

    cdef _end_turns(self)
