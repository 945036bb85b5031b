"""The storage engine: journal, tail and segments. It stores opaque entries and opens no socket."""
