"""Large replies are sent to plain sockets by threads."""
