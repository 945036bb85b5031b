"""`trilogue topics`."""
