"""The verbs that copy a data directory and make one from a copy."""
