"""The Pulsar gateway: the binary protocol, from a frame to a call of the broker and back."""
