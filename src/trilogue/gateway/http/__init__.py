"""The HTTP listener: health, metrics, and the administration APIs."""
