"""Who may do what: the authorizer port, credentials, granted permissions."""
