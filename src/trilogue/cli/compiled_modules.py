"""The modules that setup.py compiles with Cython; each also runs uncompiled.

setup.py executes this file before the package is installed: it imports nothing but `typing`.
"""

from typing import Final

COMPILED_MODULES: Final = (
    "trilogue.broker.topics.plain_batch_appender",
    "trilogue.client.kafka.producer.hashes",
    "trilogue.entry.columns",
    "trilogue.entry.kafka.message_set",
    "trilogue.entry.pack",
    "trilogue.entry.pulsar.pulsar_entry",
    "trilogue.entry.tubemq.tubemq_entry",
    "trilogue.entry.walk",
    "trilogue.gateway.frame_dispatcher",
    "trilogue.gateway.kafka.produce.durable_replies",
    "trilogue.gateway.kafka.produce.fast_path",
    "trilogue.gateway.kafka.produce.request_template",
    "trilogue.gateway.pulsar.non_persistent.send_turn",
    "trilogue.gateway.pulsar.send_fast_path",
    "trilogue.gateway.reply_slots",
    "trilogue.gateway.telemetry.request_latency",
    "trilogue.gateway.transport_writer",
    "trilogue.gateway.tubemq.send_fast_path",
    "trilogue.log.clock",
    "trilogue.log.journal.append_buffer",
    "trilogue.log.journal.commit",
    "trilogue.log.journal.commit_cycle",
    "trilogue.log.journal.window",
    "trilogue.log.partition_appender",
    "trilogue.log.pressure",
    "trilogue.log.tail.append_times",
    "trilogue.log.tail.tail",
    "trilogue.spark.payload.avro_columns",
    "trilogue.wire.fields",
    "trilogue.wire.frames",
    "trilogue.wire.pulsar.batch_reader",
    "trilogue.wire.pulsar.message_codec",
    "trilogue.wire.tubemq.block_frames",
    "trilogue.wire.tubemq.plain_send",
    "trilogue.wire.tubemq.rpc_codec",
)
