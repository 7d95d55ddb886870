"""The documentation site: pages written, generated and gathered, built by Zensical, and its
links.
"""
