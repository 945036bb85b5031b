"""The verbs people type, one file each."""
