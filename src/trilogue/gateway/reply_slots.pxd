# Types for reply_slots.py when it is compiled; the .py alone defines what happens.


cdef class ReplySlot:
    cdef public bint ready
    cdef public Py_ssize_t requests
    cdef public object timer
    cdef public Py_ssize_t waiting_bytes


cdef class ReplySlots:
    cdef public object queue
    cdef public Py_ssize_t in_flight
    cdef public bint is_draining
    cdef public bint is_full
    cdef public bint is_gone
