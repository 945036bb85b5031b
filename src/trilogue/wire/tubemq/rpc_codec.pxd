# Types for rpc_codec.py when it is compiled; the behaviour is in the .py alone.
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from trilogue.wire.fields cimport Fields, Room, size_of
from trilogue.wire.memory cimport (
    bytes_of, copy, new_bytes, room_of, signed32, signed64, uint32_at, unsigned64
)

# Constants of rpc_codec.py: C variables, so that reading one is no lookup in a dict.
cdef uint32_t _TOKEN
cdef int32_t _BLOCK_SIZE, _FRAME_HEAD_SIZE, _SERIAL_SIZE, _UNUSED_LENGTHS_MAX, _BLOCK_SHIFT
cdef int32_t _VERSION, _RESPONSE_HEADER, _STATUS_MAX, _ERR_CODE_SUCCESS, _OK, _SEND_METHOD
cdef int32_t _GET_METHOD
cdef int32_t _HEAD_FLAG, _HEADER_SERVICE, _HEADER_VERSION, _HEADER_STATUS, _BODY_METHOD
cdef int32_t _BODY_TIMEOUT, _BODY_REQUEST, _BODY_DATA, _EXCEPTION_NAME, _EXCEPTION_TEXT
cdef int32_t _SEND_CLIENT_ID, _SEND_TOPIC, _SEND_PARTITION, _SEND_DATA, _SEND_FLAG
cdef int32_t _SEND_CHECKSUM, _SEND_ADDRESS, _SEND_MESSAGE_TYPE, _SEND_MESSAGE_TIME
cdef int32_t _SEND_AUTH_INFO, _AUTH_VISIT_TOKEN, _AUTH_TOKEN, _TAG_HEAD_FLAG
cdef int32_t _TAG_HEADER_SERVICE, _TAG_HEADER_VERSION, _RESPONSE_CONN_HEADER
cdef int32_t _TAG_BODY_METHOD, _TAG_BODY_TIMEOUT, _TAG_BODY_REQUEST
cdef int32_t _TAG_BODY_DATA, _TAG_SUCCESS, _TAG_ERR_CODE, _TAG_ERR_MSG, _TAG_SEND_REQUIRE_AUTH
cdef int32_t _TAG_SEND_MESSAGE_ID, _TAG_SEND_APPEND_TIME, _TAG_SEND_APPEND_OFFSET
cdef int32_t _TAG_GET_MESSAGES, _TAG_GET_OFFSET, _TAG_GET_MIN_LIMIT_TIME, _TAG_GET_ESCAPE
cdef int32_t _TAG_GET_LAG, _TAG_GET_REQUIRE_SLOW, _TAG_GET_MAX_OFFSET, _TAG_MESSAGE_ID
cdef int32_t _TAG_MESSAGE_CHECKSUM, _TAG_MESSAGE_DATA, _TAG_MESSAGE_FLAG, _SEND_FIXED_SIZE
cdef int32_t _GET_FIXED_SIZE, _MESSAGE_TAGS_SIZE

@cython.locals(size=int64_t)
cdef Py_ssize_t _scan_part(Fields fields, Py_ssize_t pos, Py_ssize_t end) except -1

@cython.locals(size=Py_ssize_t, pos=Py_ssize_t, data="const uint8_t *", serial=int32_t,
               fields=Fields, service=int32_t, version=int32_t, method=int32_t, at=Py_ssize_t,
               values=tuple)
cpdef object parse_request(object frame)

@cython.locals(size=Py_ssize_t, pos=Py_ssize_t, data="const uint8_t *", serial=int32_t,
               fields=Fields, status=uint64_t, method=int32_t, at=Py_ssize_t, values=tuple)
cpdef object parse_response(object frame)

@cython.locals(fields=Fields, at=Py_ssize_t, partition_id=int32_t, flag=int32_t, checksum=int32_t,
               sent_addr=int32_t, values=tuple)
cpdef object parse_send(object body, int32_t serial=*)


@cython.final
cdef class BlockWriter:
    cdef bytearray frame
    cdef uint8_t *data
    cdef Py_ssize_t pos, left, rest

    @cython.locals(pos=Py_ssize_t)
    cdef void uint32(self, uint32_t value) noexcept

    @cython.locals(part=Py_ssize_t)
    cdef void put(self, const uint8_t *octets, Py_ssize_t at, Py_ssize_t size) noexcept


@cython.locals(size=Py_ssize_t, blocks=BlockWriter)
cpdef bytearray encode_frame(int32_t serial, object body)

@cython.locals(body=bytes, part=bytes, room=Room)
cpdef bytearray encode_messages_frame(int32_t serial, object parts)

@cython.locals(number=uint64_t)
cdef void _put_response_envelope(Room room, int32_t method, uint64_t size) noexcept

@cython.locals(size=Py_ssize_t, head=Room, inner=Room, room=Room, blocks=BlockWriter)
cpdef bytearray encode_request(int32_t serial, int32_t service, int32_t method, bytes message,
                               int64_t timeout_ms, int32_t version=*)

@cython.locals(size=Py_ssize_t, room=Room, blocks=BlockWriter)
cpdef bytearray encode_response(int32_t serial, int32_t method, bytes message)

@cython.locals(digits=bytes, digit=uint8_t, numbers=uint64_t, size=uint64_t, room=Room,
               blocks=BlockWriter)
cpdef bytearray encode_send_response(int32_t serial, uint64_t message_id, uint64_t append_ms,
                                     uint64_t offset)

@cython.locals(numbers=uint64_t)
cdef uint64_t _message_size(uint64_t message_id, uint64_t checksum, uint64_t size,
                            uint64_t flag) noexcept

@cython.locals(size=uint64_t, inner=uint64_t, length=Py_ssize_t, message_id=uint64_t,
               checksum=uint64_t, flag=uint64_t, room=Room, blocks=BlockWriter)
cpdef bytearray encode_get_response(int32_t serial, object messages, uint64_t offset,
                                    uint64_t lag_bytes, uint64_t end, bint require_slow=*,
                                    bint escape=*)
