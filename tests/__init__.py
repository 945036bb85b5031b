"""The tests; a package so that the folder itself never stands on the import path."""
