"""One process: settings, doors, jobs, life and death; joins everything below."""
