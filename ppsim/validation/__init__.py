"""Schedules run for real, and how far the prediction is from what was measured."""
