"""Clients of the three protocols: asyncio first, with synchronous facades."""
