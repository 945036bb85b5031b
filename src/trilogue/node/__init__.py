"""One server process: settings, listeners, background work, start and stop."""
