"""Real runs as their files show them: one reader per format, one structure, one way in
(:mod:`.read`).
"""

__all__ = ["ops_rows", "profile", "read", "run", "timers"]
