"""Classic consumer groups: JoinGroup and SyncGroup, the leader assigns partitions."""
