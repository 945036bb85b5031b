"""The HTTP door: health and metrics."""
