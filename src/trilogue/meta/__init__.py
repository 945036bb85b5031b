"""Meta: the database of slow facts: topics, segments, settings, snapshots, ids."""
