"""What the commands do; ``learner.cli`` says what is typed."""
