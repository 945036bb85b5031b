# Types for hot.py when it is compiled; the .py alone says what happens.
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from trilogue.wire.fields cimport Fields, Room, size_of
from trilogue.wire.memory cimport (
    bytes_of, copy, new_bytes, room_of, signed32, signed64, uint32_at, unsigned64
)


@cython.locals(size=int64_t)
cdef Py_ssize_t _part(Fields fields, Py_ssize_t pos, Py_ssize_t end) except -1

@cython.locals(size=Py_ssize_t, pos=Py_ssize_t, data="const uint8_t *", serial=int32_t,
               fields=Fields, service=int32_t, version=int32_t, method=int32_t, values=tuple)
cpdef object parse_request(object frame)

@cython.locals(size=Py_ssize_t, pos=Py_ssize_t, data="const uint8_t *", serial=int32_t,
               fields=Fields, status=uint64_t, method=int32_t, values=tuple)
cpdef object parse_answer(object frame)

@cython.locals(fields=Fields, at=Py_ssize_t, partition_id=int32_t, flag=int32_t, checksum=int32_t,
               sent_addr=int32_t, values=tuple)
cpdef object read_send(object body, int32_t serial=*)


@cython.final
cdef class Blocks:
    cdef bytearray frame
    cdef uint8_t *data
    cdef Py_ssize_t pos, left, rest

    @cython.locals(pos=Py_ssize_t)
    cdef void uint32(self, uint32_t value) noexcept

    @cython.locals(part=Py_ssize_t)
    cdef void put(self, const uint8_t *octets, Py_ssize_t at, Py_ssize_t size) noexcept


@cython.locals(size=Py_ssize_t, blocks=Blocks)
cpdef bytearray split(int32_t serial, object body)

@cython.locals(body=bytes, part=bytes, room=Room)
cpdef bytearray enclose(int32_t serial, object parts)

@cython.locals(number=uint64_t)
cdef void _head(Room room, int32_t method, uint64_t size) noexcept

@cython.locals(size=Py_ssize_t, head=Room, inner=Room, room=Room, blocks=Blocks)
cpdef bytearray ask(int32_t serial, int32_t service, int32_t version, int32_t method,
                    int64_t timeout_ms, bytes message)

@cython.locals(size=Py_ssize_t, room=Room, blocks=Blocks)
cpdef bytearray answer(int32_t serial, int32_t method, bytes message)

@cython.locals(digits=bytes, digit=uint8_t, size=uint64_t, room=Room, blocks=Blocks)
cpdef bytearray send_answer(int32_t serial, uint64_t message_id, uint64_t append_ms,
                            uint64_t offset)

@cython.locals(numbers=uint64_t)
cdef uint64_t _transfer_size(uint64_t message_id, uint64_t checksum, uint64_t size,
                             uint64_t flag) noexcept

@cython.locals(size=uint64_t, inner=uint64_t, length=Py_ssize_t, message_id=uint64_t,
               checksum=uint64_t, flag=uint64_t, room=Room, blocks=Blocks)
cpdef bytearray messages_answer(int32_t serial, object messages, uint64_t offset,
                                uint64_t lag_bytes, uint64_t end, bint require_slow=*,
                                bint escape=*)
