# Types for transport_writer.py when it is compiled; the .py alone defines what happens.
cimport cython

cdef extern from *:
    """
    #include <errno.h>
    #include <sys/socket.h>

    /* How many of these bytes the socket took; 0 where it is full, or has an error. */
    static Py_ssize_t send_now(int number, PyObject *data) {
        Py_buffer held;
        ssize_t sent;
        if (PyObject_GetBuffer(data, &held, PyBUF_SIMPLE) < 0) return -1;
        do sent = send(number, held.buf, held.len, MSG_DONTWAIT | MSG_NOSIGNAL);
        while (sent < 0 && errno == EINTR);
        PyBuffer_Release(&held);
        return sent < 0 ? 0 : sent;
    }
    """
    Py_ssize_t send_now(int number, object data) except -1


cdef class TransportWriter:
    cdef public object transport
    cdef public bint is_paused
    cdef public int socket_number

    cpdef send(self, object buffers)

    @cython.locals(number=int, sent=Py_ssize_t)
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
