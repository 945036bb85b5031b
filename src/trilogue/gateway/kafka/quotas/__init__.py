"""DescribeClientQuotas, AlterClientQuotas and the metering of connections."""
