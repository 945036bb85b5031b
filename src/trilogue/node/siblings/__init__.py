"""Requests between the nodes of one machine, over sockets in their data directory."""
