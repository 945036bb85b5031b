"""The same calls of Pulsar's administration, at a real Pulsar and here, side by side."""
