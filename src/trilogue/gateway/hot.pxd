# Types for hot.py when it is compiled; the .py alone says what happens.
cimport cython


cdef class Place:
    cdef public bint ready
    cdef public Py_ssize_t requests
    cdef public Py_ssize_t waiting_bytes


cdef class Flow:
    cdef public object limits
    cdef public long long receives
    cdef public int stops
    cdef public bint write_paused
    cdef public object _frames
    cdef public long long _frames_taken
    cdef public object _held
    cdef public object _next_frame
    cdef public bint _reading
    cdef public object _take
    cdef public object _taker
    cdef public object _transport
    cdef public Py_ssize_t _turn_bytes
    cdef public Py_ssize_t _turn_frames
    cdef public bint _turn_waits

    cpdef send(self, object buffers)

    cpdef send_one(self, object buffer)

    @cython.locals(rest=bint)
    cpdef _turn(self)

    @cython.locals(frames_left=Py_ssize_t, bytes_left=Py_ssize_t)
    cdef bint _give(self) except -1


cdef class HotSession:
    cdef public Flow stream
    cdef public Py_ssize_t in_flight
    cdef public bint _draining
    cdef public bint _full
    cdef public bint _gone
    cdef public object _queue
