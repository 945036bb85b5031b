"""Crowds of clients that are honest, or ask for what is larger than it looks."""
