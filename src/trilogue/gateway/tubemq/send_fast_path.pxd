# Types for send_fast_path.py when it is compiled; the .py alone defines what happens.
cimport cython
from libc.stdint cimport int64_t

from trilogue.broker.topics.plain_batch_appender cimport PlainBatchAppender
from trilogue.entry.tubemq.tubemq_entry cimport build_entry, message_id
from trilogue.gateway.transport_writer cimport ReceiptGroups, TransportWriter
from trilogue.log.pressure cimport LogPressure
from trilogue.wire.tubemq.plain_send cimport PlainSend
from trilogue.wire.tubemq.rpc_codec cimport encode_send_response


cdef int _SEND
cdef Py_ssize_t _TARGETS_MAX


cdef class SendFastPath:
    cdef object _cluster
    cdef object _connection
    cdef object _gateway
    cdef int64_t _generation
    cdef ReceiptGroups _groups
    cdef bint _has_sent
    cdef bint _is_handled
    cdef LogPressure _pressure
    cdef object _process_frame
    cdef object _requests
    cdef list _responses
    cdef int64_t _rules
    cdef PlainSend _sent
    cdef object _services
    cdef dict _targets
    cdef TransportWriter _writer

    @cython.locals(sent=PlainSend)
    cpdef take_frame(self, object frame)

    @cython.locals(groups=ReceiptGroups, writer=TransportWriter, responses=list, is_plain=bint)
    cpdef end_iteration(self)

    @cython.locals(partitions=tuple, index=Py_ssize_t, size=Py_ssize_t, now_ms=int64_t,
                   offset=int64_t, stored_id=int64_t, plain=PlainBatchAppender, is_stored=bint)
    cdef bint _append(self, PlainSend sent) except -1

    cdef _find_target(self, PlainSend sent)

    cdef _learn(self, bytes names, object frame)
