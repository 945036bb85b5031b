# Types for hot.py when it is compiled; the .py alone says what happens.
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from trilogue.wire.fields cimport Fields, Room, size_of
from trilogue.wire.memory cimport bytes_of, signed32, signed64, truncated32, uint32_at, unsigned64


@cython.locals(size=Py_ssize_t, data="const uint8_t *", command_size=uint32_t)
cdef Py_ssize_t _command_end(object view) except -1

@cython.locals(fields=Fields)
cdef Fields _command(object view, uint32_t kind)

@cython.locals(end=Py_ssize_t, data="const uint8_t *", fields=Fields, kind=uint64_t)
cpdef object command_type(object frame)

@cython.locals(fields=Fields, values=tuple)
cpdef object read_send(object frame)

@cython.locals(fields=Fields, values=tuple)
cpdef object read_flow(object frame)

@cython.locals(fields=Fields, ack_type=uint64_t, error=uint64_t, values=tuple)
cpdef object read_ack(object frame)

@cython.locals(inner=Fields, found=list, budget=int64_t, tag=uint32_t, words=tuple, values=tuple)
cdef list _ack_ids(Fields command)

@cython.locals(end=Py_ssize_t, found=list, tag=uint32_t)
cdef tuple _words(Fields fields, uint32_t number, int64_t budget)

@cython.locals(inner=Fields, found=list, tag=uint32_t)
cdef tuple _long_properties(Fields command, uint32_t wanted)

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
cpdef bytes send_receipt(uint64_t producer_id, uint64_t sequence_id, uint64_t highest_sequence_id,
                         uint64_t ledger_id, uint64_t entry_id)

@cython.locals(room=Room, size=uint32_t)
cpdef bytes send_head(uint64_t producer_id, uint64_t sequence_id, uint32_t num_messages,
                      uint64_t highest_sequence_id, bint is_chunk, uint32_t section_size)

@cython.locals(room=Room, index=uint64_t, id_size=uint32_t, size=uint32_t, epoch=uint64_t)
cpdef bytes message_head(uint64_t consumer_id, uint64_t ledger_id, uint64_t entry_id,
                         int64_t partition, uint32_t redelivery_count, tuple ack_set,
                         object consumer_epoch, uint32_t section_size, bytes broker_entry=*)
