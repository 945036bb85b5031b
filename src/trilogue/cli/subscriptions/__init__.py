"""`trilogue subscriptions`."""
