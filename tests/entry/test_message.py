from trilogue.entry.message import Message


def test_time_of_a_message_is_its_event_time_or_else_its_publish_time():
    assert Message(value=b"", event_time_ms=1, publish_time_ms=2).time_ms == 1
    assert Message(value=b"", publish_time_ms=2).time_ms == 2
    assert Message(value=None).time_ms is None
