"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""
