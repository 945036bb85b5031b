"""Quix Streams sums the numbers of each window of ten seconds, exactly once."""

import json
import sys
from datetime import timedelta

from quixstreams import Application

address, source, target, count, state = sys.argv[1:]
app = Application(
    broker_address=address,
    consumer_group="quix",
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    state_dir=state,
    loglevel="WARNING",
)
numbers, sums = (app.topic(name, value_deserializer="json") for name in (source, target))
FIRST_MS, STEP_MS, KEYS = 1_790_000_000_000, 100, 7
with app.get_producer() as producer:
    for number in range(int(count)):
        producer.produce(
            source,
            json.dumps(number).encode(),
            key=b"%d" % (number % KEYS),
            timestamp=FIRST_MS + number * STEP_MS,
        )
    for key in range(KEYS):  # a later message closes the windows before it
        producer.produce(source, b"0", key=b"%d" % key, timestamp=FIRST_MS + 10_000_000)
frames = app.dataframe(numbers).tumbling_window(timedelta(seconds=10)).sum().final()
frames = frames.apply(lambda window: window["value"]).to_topic(sums)
app.run(timeout=10)
