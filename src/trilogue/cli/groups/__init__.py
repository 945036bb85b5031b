"""`trilogue groups`."""
