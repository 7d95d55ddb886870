"""Pictures: palette, lanes, panels, maps, terminal."""

__all__ = [
    "canvas",
    "card_bars",
    "card_chart",
    "card_queues",
    "cluster_map",
    "gantt",
    "lanes",
    "layer_map",
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
