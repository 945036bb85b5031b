"""Topics read from a data directory: planned from its manifest, without the broker."""
