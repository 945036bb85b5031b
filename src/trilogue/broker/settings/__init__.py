"""Settings of topics, brokers and groups: tables, overrides, effective values."""
