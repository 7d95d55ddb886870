"""Gantt charts as matplotlib figures: what is drawn where, and the strokes that draw it."""

__all__ = ["axes", "design", "figure", "layout", "legend", "panel", "strokes", "text"]
