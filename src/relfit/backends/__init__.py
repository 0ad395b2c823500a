"""Where the arithmetic runs. A backend evaluates one block of the kernel matrix and reduces it at once."""

from relfit.backends.base import Backend, Block, BlockSums, Points, Power, TileKernel, Weight, host
from relfit.backends.lookup import LookupBackend
from relfit.backends.numpy_backend import NumpyBackend

__all__ = [
    "Backend",
    "Block",
    "BlockSums",
    "LookupBackend",
    "NumpyBackend",
    "Points",
    "Power",
    "TileKernel",
    "Weight",
    "host",
]
