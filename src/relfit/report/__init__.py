"""How a finished result is shown: text, picture, HTML. Everything is made from ``Comparison.rows()``."""
