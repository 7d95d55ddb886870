"""Gantt charts as matplotlib figures: panels, measures, strokes and marks."""

__all__ = ["axes", "design", "figure", "layout", "legend", "panel", "strokes", "text"]
