# Types for transport_writer.py when it is compiled; the .py alone defines what happens.
cimport cython


cdef class TransportWriter:
    cdef public object transport
    cdef public bint is_paused

    cpdef send(self, object buffers)

    cpdef send_one(self, object buffer)


cdef class ReceiptGroups:
    cdef public list receipts
    cdef public Py_ssize_t number
    cdef public Py_ssize_t done
    cdef public Py_ssize_t in_flight
    cdef public bint is_full
    cdef object _session
    cdef object _on_commit
    cdef object _start_timer
    cdef Py_ssize_t _in_flight_max
    cdef TransportWriter _writer
    cdef object _groups
    cdef object _committed

    @cython.locals(receipts=list, group=list)
    cpdef commit(self)

    @cython.locals(receipts=list, count=Py_ssize_t, writer=TransportWriter)
    cpdef committed(self, object problem)
