"""Requests about the cluster: features, elections, reassignments, quorum, log directories."""
