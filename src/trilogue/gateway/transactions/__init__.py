"""What the gateways share about transactions of several nodes."""
