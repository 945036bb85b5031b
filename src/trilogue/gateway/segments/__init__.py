"""Reads of segments for the connections of all protocols, in the executor."""
