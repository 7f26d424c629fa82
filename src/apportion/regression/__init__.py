"""Regression under user-level differential privacy: many tasks at once, with features per (user, task) pair."""
