"""Transactions: their state, its records in the journal, the coordinator that ends them."""
