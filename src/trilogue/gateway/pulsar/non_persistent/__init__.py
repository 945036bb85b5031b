"""Non-persistent topics of Pulsar clients: producers, consumers, and messages between them."""
