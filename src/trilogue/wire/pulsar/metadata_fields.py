"""Field numbers of MessageMetadata (pulsar.proto) that are read and written by hand.

Compiled modules take the same numbers from metadata_fields.pxd; a test compares the two.
"""

from __future__ import annotations

from typing import Final

META_PRODUCER_NAME: Final = 1
META_SEQUENCE_ID: Final = 2
META_PUBLISH_TIME: Final = 3
META_PROPERTIES: Final = 4
META_REPLICATED_FROM: Final = 5
META_PARTITION_KEY: Final = 6
META_COMPRESSION: Final = 8
META_UNCOMPRESSED_SIZE: Final = 9
META_NUM_MESSAGES: Final = 11
META_EVENT_TIME: Final = 12
META_ENCRYPTION_KEYS: Final = 13
META_SCHEMA_VERSION: Final = 16
META_KEY_IS_B64: Final = 17
META_ORDERING_KEY: Final = 18
META_DELIVER_AT_TIME: Final = 19
META_MARKER_TYPE: Final = 20
META_TXN_LEAST: Final = 22
META_TXN_MOST: Final = 23
META_HIGHEST_SEQUENCE_ID: Final = 24
META_NULL_VALUE: Final = 25
META_UUID: Final = 26
META_NUM_CHUNKS: Final = 27
META_TOTAL_CHUNK_SIZE: Final = 28
META_CHUNK_ID: Final = 29
META_NULL_KEY: Final = 30
META_SCHEMA_ID: Final = 32
