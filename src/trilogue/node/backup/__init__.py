"""Backups of a data directory while a server works on it, and directories made from them."""
