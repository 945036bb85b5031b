"""Writes the parts of the documentation that are tables of the code: `python -m tools.docs`."""
