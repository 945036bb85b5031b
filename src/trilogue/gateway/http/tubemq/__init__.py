"""TubeMQ's web API."""
