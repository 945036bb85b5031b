"""Groups of all kinds (classic, consumer, share, streams) and committed offsets."""
