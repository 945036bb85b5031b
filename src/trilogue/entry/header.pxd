# The numbers of header.py as C constants; tests/entry/test_header.py compares the two.

cdef enum:
    BASE_OFFSET_AT = 0
    LENGTH_AT = 8
    OWNER_EPOCH_AT = 12
    MAGIC_AT = 16
    CHECKSUM_AT = 17
    ATTRIBUTES_AT = 21
    LAST_OFFSET_DELTA_AT = 23
    BASE_TIMESTAMP_AT = 27
    MAX_TIMESTAMP_AT = 35
    PRODUCER_ID_AT = 43
    PRODUCER_EPOCH_AT = 51
    BASE_SEQUENCE_AT = 53
    RECORD_COUNT_AT = 57
    HEADER_SIZE = 61
    LENGTH_PREFIX = 12
    STAMP_SIZE = 16
    CHECKED_FROM = 21
    FORMAT_AT = 21
    CODEC_AT = 22
    MAGIC = 2
    SMALLEST_RECORD = 7
