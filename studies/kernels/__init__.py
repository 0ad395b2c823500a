"""Which kernel sees the difference, and does choosing one keep the level? Rates on problems whose truth is known."""
