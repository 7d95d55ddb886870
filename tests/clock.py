"""Times of tests, of which none depends on how fast the machine is."""

# Seconds for what ends by itself, such as a search by its proof: the limit of one that hangs is
# nobody's.
ENDLESS = 1e6

# Seconds after which what would wait for ever is taken for a hang: far more than a loaded machine
# takes.
HANG_S = 1800.0
