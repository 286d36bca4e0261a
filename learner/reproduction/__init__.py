"""The figures of both papers, on real records."""
