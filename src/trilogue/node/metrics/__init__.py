"""What `/metrics` has: figures of the node, of requests, topics and readers."""
