# Types for frame_dispatcher.py when it is compiled; the .py alone defines what happens.
cimport cython

from trilogue.gateway.transport_writer cimport TransportWriter
from trilogue.wire.frames cimport ReceiveBuffer


cdef class IterationBudget:
    cdef object _clock
    cdef object _call_soon
    cdef double _since_s
    cdef bint _is_watched
    cdef object _waiting
    cdef object _large
    cdef bint _is_turn_of_large

    @cython.locals(now_s=double, used_s=double)
    cpdef bint is_used_up(self) except -1
    cpdef defer(self, call)
    cpdef defer_large(self, call)
    cpdef bint admits_large(self) except -1
    cdef _watch(self)


cdef class FrameDispatcher:
    cdef public ReceiveBuffer frames
    cdef public int stops
    cdef public long long receives
    cdef public long long frames_taken
    cdef public bint is_reading
    cdef public bint is_scheduled
    cdef public object held
    cdef object _control
    cdef TransportWriter _writer
    cdef object _next_frame
    cdef object _take_frame
    cdef object _end_iteration
    cdef bint _is_large
    cdef Py_ssize_t _iteration_frames
    cdef Py_ssize_t _iteration_bytes
    cdef IterationBudget _budget

    @cython.locals(has_rest=bint)
    cpdef dispatch(self)

    @cython.locals(frames_left=Py_ssize_t, bytes_left=Py_ssize_t, is_checked=bint)
    cdef bint _give_frames(self) except -1
