"""The map of workers in one column of a paper: its texts stay inside the figure, and apart."""

from itertools import pairwise

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from ppsim.show.drawing.worker_map import WorkerMap, figure_of


@pytest.mark.parametrize("width", [3.3, 6.75])
def test_texts_of_the_map_stay_inside_and_steps_apart(width):
    workers = tuple(f"replica {replica} device 0" for replica in range(8))
    steps = tuple(range(1000, 1032))
    figure = figure_of(WorkerMap(np.full((8, 32), 1.2), workers, steps), width)
    FigureCanvasAgg(figure).draw()
    texts = [*figure.texts, *figure.axes[0].get_yticklabels(), *figure.axes[0].get_xticklabels()]
    boxes = [text.get_window_extent() for text in texts]
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)
    assert all(box.y1 <= figure.bbox.y1 for box in boxes)
    named = [label.get_window_extent() for label in figure.axes[0].get_xticklabels()]
    assert len(named) > 2
    assert all(left.x1 + 2 < right.x0 for left, right in pairwise(named))
