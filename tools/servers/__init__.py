"""Real servers of other projects, started here as oracles for tests and as rivals in benchmarks."""
