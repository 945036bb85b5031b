"""The API of Confluent's schema registry over the schemas of the broker."""
