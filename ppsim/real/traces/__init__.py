"""Real runs made elsewhere: a reader per format, one structure, one entry point (:mod:`.read`)."""

__all__ = ["ops_rows", "profile", "read", "run", "timers"]
