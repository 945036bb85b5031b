"""The CONNECT of a Pulsar client, its login, and the end of a login."""
