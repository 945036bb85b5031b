"""ListOffsets and OffsetForLeaderEpoch."""
