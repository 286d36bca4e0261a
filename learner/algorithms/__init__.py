"""The papers' equations and ours: pure, from one state to the next."""
