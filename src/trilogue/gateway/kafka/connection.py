"""The Kafka door: what all its connections share, and one connection: header, row of the table, reply.

How a node opens the door (this is the whole agreement with `node/`):

    door = KafkaDoor(
        broker=broker,              # trilogue.broker.broker.Broker
        log=log,                    # trilogue.log.log.Log: its journal answers `on_commit`, its tail says `under_pressure`
        commit=commit,              # async (trilogue.broker Commit) -> None: writes ops to meta, then applies them
        advertised=advertised,      # () -> (host, port): where clients shall come back to
        settings=KafkaSettings(),   # auto-creation, fetch limits, default request limits
        authorizer=authorizer,      # trilogue.broker.access.Authorizer
        now_ms=now_ms,              # wall clock
        executor=executor,          # concurrent.futures.Executor for cold reads
    )
    async with door:                                     # owns the tasks of long requests
        async with Listener(door, Limits(), monotonic=loop.time) as listener:
            host, port = await listener.open("127.0.0.1", 9092)     # port 0 takes a free one
            ...
            await listener.drain(deadline_s=10.0)        # no new connections or requests; answers leave
    # leaving `listener` cuts what is still connected; leaving `door` cancels what still runs

`door.session()` gives the listener a session for a new connection; `door.name` is "kafka".
Counters for /metrics: `listener.connections` (open now), `listener.refused`, `door.requests` (by API key).
"""

from __future__ import annotations
