"""Owners elsewhere: over gRPC, on streams they open, in processes on this machine."""
