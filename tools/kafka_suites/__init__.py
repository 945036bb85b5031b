"""The suites of Kafka's own clients, run on Trilogue and on a real Kafka."""
