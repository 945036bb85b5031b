# The numbers of layout.py as C constants; tests/entry/test_header.py compares the two.

cdef enum:
    VERSION_AT = 61
    FLAGS_AT = 62
    RESERVED_AT = 63
    METADATA_SIZE_AT = 65
    SEQUENCE_ID_AT = 69
    HIGHEST_SEQUENCE_ID_AT = 77
    BROKER_TIME_AT = 85
    PRODUCER_KEY_AT = 93
    PULSAR_SECTION_AT = 101
    SECTION_CHECKSUM_AT = 103
    UNCHECKED_AT = 107
    METADATA_AT = 111
    BLOCK_VERSION = 1
    CHUNK = 1
    OUR_CHECKSUM = 2
    KEYED = 4
    BATCH = 8
    DELAYED = 16
    ENCRYPTED = 32
    PART_MAGIC = 14
    CHECKSUM_PART = 1
    BROKER_METADATA_PART = 2
    SECTION_METADATA_AT = 10
    PART_HEAD_SIZE = 6
