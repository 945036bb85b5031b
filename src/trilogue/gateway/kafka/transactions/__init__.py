"""InitProducerId, DescribeProducers, DescribeTransactions, ListTransactions."""
