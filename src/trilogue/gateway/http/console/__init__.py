"""The console: pages in a browser about topics, messages, groups and the node."""
