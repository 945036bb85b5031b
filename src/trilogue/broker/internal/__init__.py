"""Topics that the broker itself writes: `__consumer_offsets` and `__transaction_state`."""
