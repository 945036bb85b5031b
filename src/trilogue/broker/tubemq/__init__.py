"""Consumer groups of TubeMQ: assignment, registrations, flow control, group rules."""
