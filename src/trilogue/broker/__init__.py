"""Rules and state of topics, producers, positions, groups, transactions. Synchronous."""
