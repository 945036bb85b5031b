"""The API of Confluent's REST proxy for Kafka: messages, consumers and topics over HTTP."""
