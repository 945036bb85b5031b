"""The TubeMQ gateway: translates TubeMQ's requests to calls of the broker, and results back."""
