"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords."""
