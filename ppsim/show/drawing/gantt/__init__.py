"""Gantt charts as matplotlib figures: panels, sizes, shapes and marks."""

__all__ = ["axes", "design", "figure", "layout", "legend", "panel", "strokes", "text"]
