"""Entries of TubeMQ's producers."""
