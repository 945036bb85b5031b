# What the compiled commit thread needs of C. The .py defines what it does and why.
cimport cython

cdef extern from *:
    """
    #include <errno.h>
    #include <stdint.h>
    #include <sys/uio.h>
    #include <unistd.h>

    /* All of it on disk (flags: RWF_DSYNC) or in the page cache (0), or an errno. A sync that failed is never tried again.
       A write that makes the file longer is synced once more: Linux before 6.7 may return from a
       direct synchronous one with the new length in memory only. Its length is asked for by lseek:
       fstat shows the time of the last write, and since Linux 6.13 the next write then has to set
       a new one, which ext4 without a journal writes to disk, as a second write. It is asked for
       only beyond the length that is known: a journal file never gets shorter while it is written. */
    static int write_all(int fd, char *base, ssize_t size, long long offset, int flags,
                         long long *length) {
        long long end = offset + size;
        if (end > *length) {
            *length = lseek(fd, 0, SEEK_END);
            if (*length < 0) return errno;
        }
        int extends = flags && end > *length;
        while (size > 0) {
            struct iovec part = {base, (size_t)size};
            ssize_t written = pwritev2(fd, &part, 1, offset, flags);
            if (written < 0) {
                if (errno == EINTR) continue;
                return errno;
            }
            if (written == 0) return EIO;
            base += written; size -= written; offset += written;
        }
        if (extends && fdatasync(fd) != 0) return errno;
        return 0;
    }

    /* Where the bytes lie; the caller keeps the object, so they stay there. */
    static char *address_of(PyObject *data) {
        Py_buffer buffer;
        if (PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE) < 0) return NULL;
        char *base = buffer.buf;
        PyBuffer_Release(&buffer);
        return base;
    }

    static int wait_for(int event_fd) {
        uint64_t count;
        for (;;) {
            ssize_t got = read(event_fd, &count, sizeof count);
            if (got == sizeof count) return 1;
            if (got >= 0 || errno != EINTR) return 0;
        }
    }

    static void signal_to(int event_fd) {
        uint64_t one = 1;
        while (write(event_fd, &one, sizeof one) < 0 && errno == EINTR) {}
    }
    """
    char *address_of(object data) except NULL
    int write_all(int fd, char *base, Py_ssize_t size, long long offset, int flags,
                  long long *length) noexcept nogil
    bint wait_for(int event_fd) noexcept nogil
    void signal_to(int event_fd) noexcept nogil


cdef class NativeCommitter:
    cdef int _jobs
    cdef int _done
    cdef int _fd
    cdef int _flags
    cdef char *_base
    cdef Py_ssize_t _size
    cdef long long _offset
    cdef long long _length
    cdef int _result
    cdef bint _stopping
    cdef bint _busy
    cdef object _data
    cdef object _file
    cdef object _scheduler
    cdef object _thread
    cdef object _on_done
