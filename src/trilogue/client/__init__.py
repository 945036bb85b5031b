"""How to ask: small asyncio clients."""
