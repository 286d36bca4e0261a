"""The loop, and what it talks to: owners, the line to each, the journal."""
