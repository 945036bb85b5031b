"""What the gateways measure of requests and messages, for /metrics and for traces."""
