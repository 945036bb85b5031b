"""The declaration language of messages and its compiler."""
