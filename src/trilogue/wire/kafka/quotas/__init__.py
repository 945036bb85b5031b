"""Requests about client quotas."""
