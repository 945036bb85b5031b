# Types for message_codec.py when it is compiled; the behaviour is in the .py alone.
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from trilogue.wire.fields cimport Fields, Room, size_of
from trilogue.wire.memory cimport bytes_of, signed32, signed64, truncated32, uint32_at, unsigned64
from trilogue.wire.pulsar.metadata_fields cimport (
    META_CHUNK_ID, META_COMPRESSION, META_DELIVER_AT_TIME, META_ENCRYPTION_KEYS,
    META_EVENT_TIME, META_HIGHEST_SEQUENCE_ID, META_KEY_IS_B64, META_MARKER_TYPE, META_NULL_KEY,
    META_NULL_VALUE, META_NUM_CHUNKS, META_NUM_MESSAGES, META_ORDERING_KEY, META_PARTITION_KEY,
    META_PRODUCER_NAME, META_PROPERTIES, META_PUBLISH_TIME, META_REPLICATED_FROM,
    META_SCHEMA_ID, META_SCHEMA_VERSION, META_SEQUENCE_ID, META_TOTAL_CHUNK_SIZE,
    META_TXN_LEAST, META_TXN_MOST, META_UNCOMPRESSED_SIZE, META_UUID
)


# Constants of message_codec.py: C variables, so that reading one is no lookup in a dict.
cdef int32_t _VARINT, _BYTES, _WIRE_TYPE_MASK, _NUMBER_SHIFT, _MAX_ACK_TYPE, _VALIDATION_ERRORS
cdef int32_t _SEND, _SEND_RECEIPT, _MESSAGE, _ACK, _FLOW, _BASE_TYPE, _SEND_PRODUCER_ID
cdef int32_t _SEND_SEQUENCE_ID, _SEND_NUM_MESSAGES, _SEND_TXN_LEAST, _SEND_TXN_MOST
cdef int32_t _SEND_HIGHEST_SEQUENCE_ID, _SEND_IS_CHUNK, _SEND_MARKER, _RECEIPT_PRODUCER_ID
cdef int32_t _RECEIPT_SEQUENCE_ID, _RECEIPT_MESSAGE_ID, _RECEIPT_HIGHEST_SEQUENCE_ID
cdef int32_t _MESSAGE_CONSUMER_ID, _MESSAGE_MESSAGE_ID, _MESSAGE_REDELIVERY_COUNT
cdef int32_t _MESSAGE_ACK_SET, _MESSAGE_CONSUMER_EPOCH, _ACK_CONSUMER_ID, _ACK_TYPE
cdef int32_t _ACK_MESSAGE_ID, _ACK_VALIDATION_ERROR, _ACK_PROPERTIES, _ACK_TXN_LEAST
cdef int32_t _ACK_TXN_MOST, _ACK_REQUEST_ID, _FLOW_CONSUMER_ID, _FLOW_PERMITS, _ID_LEDGER
cdef int32_t _ID_ENTRY, _ID_PARTITION, _ID_BATCH_INDEX, _ID_ACK_SET, _ID_BATCH_SIZE, _KEY, _VALUE
cdef int32_t _TAG_BASE_TYPE, _TAG_SEND_PRODUCER_ID, _TAG_SEND_SEQUENCE_ID, _TAG_SEND_NUM_MESSAGES
cdef int32_t _TAG_SEND_TXN_LEAST, _TAG_SEND_TXN_MOST, _TAG_SEND_HIGHEST_SEQUENCE_ID
cdef int32_t _TAG_SEND_IS_CHUNK, _TAG_RECEIPT_PRODUCER_ID, _TAG_RECEIPT_SEQUENCE_ID
cdef int32_t _TAG_RECEIPT_MESSAGE_ID, _TAG_RECEIPT_HIGHEST_SEQUENCE_ID, _TAG_MESSAGE_CONSUMER_ID
cdef int32_t _TAG_MESSAGE_MESSAGE_ID, _TAG_MESSAGE_REDELIVERY_COUNT, _TAG_MESSAGE_ACK_SET
cdef int32_t _TAG_MESSAGE_CONSUMER_EPOCH, _TAG_ACK_MESSAGE_ID, _TAG_ACK_PROPERTIES
cdef int32_t _TAG_ID_LEDGER, _TAG_ID_ENTRY, _TAG_ID_PARTITION

@cython.locals(size=Py_ssize_t, data="const uint8_t *", command_size=uint32_t)
cdef Py_ssize_t _command_end(object view) except -1

@cython.locals(fields=Fields)
cdef Fields _command(object view, uint32_t kind)

@cython.locals(end=Py_ssize_t, data="const uint8_t *", fields=Fields, kind=uint64_t)
cpdef object read_command_type(object frame)

@cython.locals(fields=Fields, values=tuple)
cpdef object read_send(object frame)

@cython.final
cdef class SendHead:
    cdef readonly uint64_t producer_id, sequence_id, highest_sequence_id
    cdef readonly bint is_in_transaction
    cdef readonly Py_ssize_t section_at

    @cython.locals(fields=Fields, end=Py_ssize_t, least=uint64_t)
    cpdef bint read(self, object frame) except -1

@cython.locals(fields=Fields, values=tuple)
cpdef object read_flow(object frame)

@cython.locals(fields=Fields, ack_type=uint64_t, error=uint64_t, values=tuple)
cpdef object read_ack(object frame)

@cython.locals(inner=Fields, found=list, budget=int64_t, tag=uint32_t, words=tuple, values=tuple)
cdef list _ack_ids(Fields command)

@cython.locals(end=Py_ssize_t, found=list, tag=uint32_t)
cdef tuple _words(Fields fields, uint32_t number, int64_t budget)

@cython.locals(inner=Fields, found=list, tag=uint32_t)
cdef tuple _long_properties(Fields command)

@cython.locals(fields=Fields)
cpdef tuple read_properties(object view, uint32_t number=*)

@cython.locals(inner=Fields, found=list, tag=uint32_t, wanted=uint32_t)
cdef tuple properties_of(Fields fields, uint32_t number)

@cython.locals(fields=Fields, values=tuple)
cpdef object read_metadata(object view)

@cython.locals(fields=Fields, producer_id=uint64_t, sequence_id=uint64_t, highest=uint64_t, values=tuple)
cpdef object read_receipt(object frame)

@cython.locals(fields=Fields, consumer_id=uint64_t, redelivery_count=uint32_t, words=tuple, values=tuple)
cpdef object read_message(object frame)

@cython.locals(command_size=uint32_t)
cdef void _head(Room room, int kind, uint32_t size, uint32_t section_size) noexcept

@cython.locals(room=Room, id_size=uint32_t, size=uint32_t)
cpdef bytes encode_send_receipt(uint64_t producer_id, uint64_t sequence_id, uint64_t highest_sequence_id,
                         uint64_t ledger_id, uint64_t entry_id)

@cython.locals(room=Room, size=uint32_t, most=uint64_t, least=uint64_t)
cpdef bytes encode_send_head(uint64_t producer_id, uint64_t sequence_id, uint32_t num_messages,
                      uint64_t highest_sequence_id, bint is_chunk, uint32_t section_size,
                      tuple txn_id=*)

@cython.locals(room=Room, index=uint64_t, id_size=uint32_t, size=uint32_t, epoch=uint64_t)
cpdef bytes encode_message_head(uint64_t consumer_id, uint64_t ledger_id, uint64_t entry_id,
                         int64_t partition, uint32_t redelivery_count, tuple ack_set,
                         object consumer_epoch, uint32_t section_size, bytes broker_entry=*)

@cython.locals(entry_id=uint64_t, size=uint32_t, frames=list)
cpdef list encode_messages(uint64_t consumer_id, uint64_t ledger_id, object entry_ids,
                           int64_t partition, object consumer_epoch, object sections)
