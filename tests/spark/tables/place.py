"""Where a table of a test is: opened by us, read by the library of its format."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from trilogue.spark.tables.delta_table import DeltaTopicTable
from trilogue.spark.tables.iceberg_table import IcebergTopicTable
from trilogue.spark.tables.parquet_table import ParquetTopicTable
from trilogue.spark.tables.topic_table import TopicTable


class Place:
    """A table of one format in a folder: opened by us, read by the format's own library."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        (folder / "warehouse").mkdir(exist_ok=True)
        self.catalog = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
        }

    def open(self, *partition_by: str) -> TopicTable:
        if self.kind == "delta":
            return DeltaTopicTable(str(self.folder / "delta"), None, partition_by)
        if self.kind == "iceberg":
            return IcebergTopicTable("space.t", "c", self.catalog, partition_by)
        return ParquetTopicTable(self.folder / "parquet")

    @property
    def arguments(self) -> list[str]:
        """The table on the command line."""
        if self.kind == "iceberg":
            pairs = [f"--property={name}={value}" for name, value in self.catalog.items()]
            return ["--iceberg", "space.t", "--catalog", "c", *pairs]
        return [f"--{self.kind}", str(self.folder / self.kind)]

    def read(self) -> pa.Table:
        if self.kind == "delta":
            from deltalake import DeltaTable

            return DeltaTable(self.folder / "delta").to_pyarrow_table()
        if self.kind == "iceberg":
            return self.load().scan().to_arrow()
        return pq.read_table(self.folder / "parquet", schema=None)

    def load(self):
        from pyiceberg.catalog import load_catalog

        return load_catalog("c", **self.catalog).load_table("space.t")

    def find_parts(self) -> Counter[str]:
        """How many data files each partition of the table has."""
        return Counter(path.parent.name for path in self.folder.rglob("*.parquet"))

    def count_rows(self) -> int:
        """How many rows have been committed: 0 as long as there is no table."""
        from deltalake.exceptions import TableNotFoundError
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self.read().num_rows
        except (TableNotFoundError, NoSuchTableError, FileNotFoundError):
            return 0

    def count_files(self) -> int:
        """How many data files there are: each commit adds one."""
        return sum(1 for _ in self.folder.rglob("*.parquet"))
