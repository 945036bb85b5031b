# The numbers of layout.py as C constants; tests/entry/test_header.py compares the two.

cdef enum:
    VERSION_AT = 61
    FLAGS_AT = 62
    TYPE_SIZE_AT = 63
    TYPE_HASH_AT = 65
    DATA_CHECKSUM_AT = 69
    SENT_FROM_AT = 73
    MESSAGE_TIME_AT = 77
    BROKER_TIME_AT = 85
    TYPE_AT = 93
    BLOCK_VERSION = 1
    ATTRIBUTES = 1
    TYPED = 2
