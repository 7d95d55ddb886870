"""Everything that ppsim does on a GPU, as one command for a machine that is lent for ten minutes.

``python -m tests.gpu OUT`` runs from a checkout, without installation and without a network.
"""
