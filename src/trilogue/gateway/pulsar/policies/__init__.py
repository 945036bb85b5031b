"""Policies that act by themselves."""
