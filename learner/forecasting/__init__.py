"""What a study would come to, from public records alone."""
