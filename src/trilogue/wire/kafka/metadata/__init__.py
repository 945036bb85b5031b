"""Metadata, ApiVersions, DescribeCluster, DescribeTopicPartitions."""
