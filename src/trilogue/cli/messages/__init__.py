"""`trilogue produce` and `trilogue consume`."""
