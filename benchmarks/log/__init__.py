"""The log without a socket: `python -m benchmarks.log`, `make bench-log`.

A whole node without connections is driven by plain function calls, so what is measured is
journal, tail, flush, merge, recovery and reading, and nothing else. Beside each figure that a disk
decides stands what this disk can do at best, measured in turn with it in the same run
(`limits.py`).

    appends.py    durable appends: one in flight, full windows, and with a flush running
    writes.py     bytes written to segments, merges included, and syncs
    recovery.py   journals of 64 and 256 MiB, page cache dropped
    starts.py     a start with 10^8 messages in segments
    reads.py      from memory, from segments, cold and warm
    memory.py     bytes a partition, bytes an entry
    report.py     the gates, the table, the file
"""
