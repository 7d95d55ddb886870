"""Several schedules or runs side by side: compare, jitter, time against memory."""
