"""How things look: palette, Gantt chart, memory panel, trade-off, terminal."""

__all__ = [
    "axes",
    "canvas",
    "cluster_map",
    "gantt",
    "gantt_design",
    "gantt_layout",
    "gantt_legend",
    "gantt_panel",
    "gantt_strokes",
    "gantt_text",
    "lanes",
    "legend",
    "letters",
    "load_map",
    "look",
    "palette",
    "terminal",
    "terminal_marks",
    "trust",
    "worker_map",
]
