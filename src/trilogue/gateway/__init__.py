"""Gateways: sockets, and the translation of each protocol into calls of the broker."""
