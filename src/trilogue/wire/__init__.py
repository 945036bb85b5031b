"""Bytes to messages and back, per protocol: no I/O, no clock, no state but a buffer."""
