"""SASL logins, delegation tokens, ACLs and SCRAM credentials."""
