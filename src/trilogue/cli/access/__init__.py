"""The verbs of users and ACLs."""
