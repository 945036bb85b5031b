"""The tail: entries that are not yet in a segment, in memory."""
