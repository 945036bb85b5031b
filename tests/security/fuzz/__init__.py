"""Access control from outside: what a client without rights gets at every listener."""
