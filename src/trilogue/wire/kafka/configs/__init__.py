"""DescribeConfigs, AlterConfigs, ListConfigResources."""
