"""Client quotas and the token buckets that enforce them."""
