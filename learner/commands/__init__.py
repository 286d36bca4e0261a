"""What the commands do; ``learner.cli`` has their arguments and options."""
