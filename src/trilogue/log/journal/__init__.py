"""The journal: windows, frames, the commit thread, recovery."""
