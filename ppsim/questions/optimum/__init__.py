"""Questions about the best order and the best split."""
