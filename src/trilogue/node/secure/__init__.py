"""A secured data directory: its authority, certificates, administrator and client files."""
