"""The room that names take in a figure."""

from matplotlib.text import Text


def box_of(name):
    """The box of a name alone, without the line to its point."""
    name.get_window_extent()  # moves it to its place
    return Text.get_window_extent(name)
