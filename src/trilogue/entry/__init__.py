"""One stored batch in its producer's own format: verify, patch, walk, convert, decode to Arrow."""
