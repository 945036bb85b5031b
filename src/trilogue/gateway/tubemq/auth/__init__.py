"""Logins of TubeMQ clients: signatures, tokens, and what a session has proved."""
