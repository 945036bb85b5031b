"""TubeMQ's wire protocol, versions 1 to 3: frames, messages, methods, error codes."""
