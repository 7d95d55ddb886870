"""Times of tests, of which none depends on how fast the machine is."""

# Seconds for what ends by itself, such as a search by its proof: the limit of one that hangs is nobody's.
ENDLESS = 1e6
