"""Several node processes over one data directory."""
