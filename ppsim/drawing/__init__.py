"""How things look: palette, Gantt chart, memory panel, trade-off, terminal."""
