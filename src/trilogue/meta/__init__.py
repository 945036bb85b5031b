"""Slow small facts that survive: topics, segments, snapshots, ids."""
