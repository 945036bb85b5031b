# Types for transport_writer.py when it is compiled; the .py alone defines what happens.


cdef class TransportWriter:
    cdef public object transport
    cdef public bint is_paused

    cpdef send(self, object buffers)

    cpdef send_one(self, object buffer)
