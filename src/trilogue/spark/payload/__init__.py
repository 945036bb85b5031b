"""Typed payloads: JSON, Avro and Protobuf messages become typed Arrow columns in the worker."""
