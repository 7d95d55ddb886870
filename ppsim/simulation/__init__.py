"""The exact longest-path model of one or many runs, and the numbers read off it."""
