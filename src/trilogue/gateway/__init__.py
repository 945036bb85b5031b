"""Sockets and translation: where foreign words become ours."""
