"""Finished results: what was decided, with every setting. They know nothing of how they are
shown.
"""
