"""Our own simulations: each writes a page of the documentation. Not installed; run from the root of a checkout."""
