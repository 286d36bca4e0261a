"""From settings to decisions: what will run, and what each owner is asked to promise."""
