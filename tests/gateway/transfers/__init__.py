"""Tests of large replies that threads send."""
