"""Access control: the authorizer port, credentials, granted permissions."""
