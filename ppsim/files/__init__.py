"""Files of schedules and timelines: readers, writers, and conversion between formats."""
