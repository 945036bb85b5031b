"""The same figures, computed by DuckDB straight from the CSV files: the judge of the demo.

Nothing is shared with the pipeline but the definition of what is counted. There is no tolerance:
every row and every figure must be equal.
"""

from __future__ import annotations

from pathlib import Path

DELAYS = """
WITH flights AS (SELECT * FROM read_csv('{flights}', nullstr='NA')),
     weather AS (SELECT * FROM read_csv('{weather}', nullstr='NA')),
     planes AS (SELECT tailnum, seats FROM read_csv('{planes}', nullstr='NA')),
     airlines AS (SELECT * FROM read_csv('{airlines}', nullstr='NA'))
SELECT strftime(date_trunc('day', f.time_hour), '%Y-%m-%d') AS day,
       f.carrier, a.name AS airline, f.origin,
       count(*)::BIGINT AS flights,
       count(*) FILTER (f.dep_time IS NULL)::BIGINT AS cancelled,
       count(*) FILTER (f.dep_delay > 15)::BIGINT AS delayed,
       sum(f.dep_delay)::BIGINT AS delay_minutes,
       max(f.dep_delay)::BIGINT AS worst_delay,
       count(*) FILTER (w.visib < 3 OR w.precip > 0)::BIGINT AS poor_weather,
       count(*) FILTER (w.time_hour IS NULL)::BIGINT AS unknown_weather,
       sum(p.seats)::BIGINT AS seats
FROM flights f
LEFT JOIN weather w ON w.origin = f.origin AND w.time_hour = f.time_hour
LEFT JOIN planes p ON p.tailnum = f.tailnum
LEFT JOIN airlines a ON a.carrier = f.carrier
GROUP BY ALL ORDER BY ALL
"""
DELAYS_FOUND = """
SELECT strftime(day, '%Y-%m-%d') AS day, carrier, airline, origin, flights, cancelled, delayed,
       delay_minutes, worst_delay::BIGINT AS worst_delay, poor_weather, unknown_weather, seats
FROM read_parquet('{found}/*/*.parquet', hive_partitioning=false)
WHERE carrier <> 'closing' ORDER BY ALL
"""
CANCELLED = """
SELECT strftime(f.time_hour, '%Y-%m-%d %H') AS hour, f.carrier, a.name AS airline,
       f.flight::BIGINT AS flight, f.tailnum, f.origin, f.dest, p.name AS to
FROM read_csv('{flights}', nullstr='NA') f
LEFT JOIN read_csv('{airlines}', nullstr='NA') a ON a.carrier = f.carrier
LEFT JOIN read_csv('{airports}', nullstr='NA') p ON p.faa = f.dest
WHERE f.dep_time IS NULL ORDER BY ALL
"""
CANCELLED_FOUND = """
SELECT strftime(time_hour, '%Y-%m-%d %H') AS hour, carrier, airline,
       flight::BIGINT AS flight, tailnum, origin, dest, "to"
FROM read_parquet('{found}/*/*.parquet', hive_partitioning=false) ORDER BY ALL
"""


def differences(
    paths: dict[str, Path], delays: str, cancellations: str
) -> tuple[list[str], dict[str, int]]:
    """Compare the pipeline's Parquet files with the data set: what differs, and their rows.

    No difference is an empty list.
    """
    import duckdb

    files = {name: str(path) for name, path in paths.items()}
    with duckdb.connect() as base:
        base.execute("SET TimeZone = 'UTC'")
        said: list[str] = []
        rows = {}
        for what, wanted, found, folder in (
            ("delay-stats", DELAYS, DELAYS_FOUND, delays),
            ("cancellations", CANCELLED, CANCELLED_FOUND, cancellations),
        ):
            left = base.execute(wanted.format(**files)).fetchall()
            right = base.execute(found.format(found=folder)).fetchall()
            said += _compare(what, left, right)
            rows[what] = len(right)
        return said, rows


def _compare(
    what: str, wanted: list[tuple[object, ...]], found: list[tuple[object, ...]]
) -> list[str]:
    if wanted == found:
        return []
    missing, extra = set(wanted) - set(found), set(found) - set(wanted)
    return [
        f"{what}: {len(found)} rows where the data set gives {len(wanted)}",
        *(f"  missing: {row}" for row in sorted(missing, key=str)[:3]),
        *(f"  extra:   {row}" for row in sorted(extra, key=str)[:3]),
    ]
