"""ShareFetch and ShareAcknowledge: the records of share groups."""
