"""What a run leaves: its folder, report, pictures, progress and metrics."""
