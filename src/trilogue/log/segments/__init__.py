"""Segments: format, writer, reader, catalog, manifest."""
