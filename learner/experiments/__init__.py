"""Many runs at once, and the papers' figures."""
