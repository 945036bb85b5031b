"""Flink copies a topic of JSON exactly once; it runs until killed."""

import sys

from pyflink.common import Configuration
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.table import StreamTableEnvironment

address, source, target, connector = sys.argv[1:]
settings = {
    "execution.checkpointing.interval": "2s",
    "pipeline.jars": f"file://{connector}",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "restart-strategy.fixed-delay.delay": "1s",
}
configuration = Configuration()
for name, value in settings.items():
    configuration.set_string(name, value)
environment = StreamExecutionEnvironment.get_execution_environment(configuration)
environment.set_parallelism(2)
tables = StreamTableEnvironment.create(environment)
kafka = f"'connector'='kafka', 'properties.bootstrap.servers'='{address}', 'format'='json'"
tables.execute_sql(
    f"create table source (n bigint) with ({kafka}, 'topic'='{source}', 'scan.startup.mode'="
    "'earliest-offset', 'properties.group.id'='flink')"
)
tables.execute_sql(
    f"create table target (n bigint) with ({kafka}, 'topic'='{target}', 'sink.delivery-guarantee'="
    "'exactly-once', 'sink.transactional-id-prefix'='copy', "
    "'properties.transaction.timeout.ms'='20000')"
)
tables.execute_sql("insert into target select n from source").wait()
