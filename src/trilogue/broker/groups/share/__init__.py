"""Share groups (KIP-932): members, and the records that they acquire."""
