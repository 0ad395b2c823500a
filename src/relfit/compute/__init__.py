"""Sums over kernel matrices: backends, the plan of tiles and patches, schedulers,
checkpoints, memory.
"""
