"""Many runs at once, in arrays: replicates, rounds, schedules, sweeps, and how good a model is."""
