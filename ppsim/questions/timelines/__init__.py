"""Questions about schedules in time and memory."""
