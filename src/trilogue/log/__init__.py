"""Bytes that survive: journal, tail, segments. Moves opaque entries; built without a socket."""
