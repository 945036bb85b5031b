"""The TubeMQ door: what its clients say, translated for the broker, and back."""
