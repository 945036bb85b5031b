"""Conversion of entries between protocols, through the neutral `Message`."""
