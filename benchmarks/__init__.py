"""Measurements that others can repeat: one command, the real server and ours in turn."""
