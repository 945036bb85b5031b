"""Requests of a controller with ZooKeeper and its brokers, which the internal listener answers."""
