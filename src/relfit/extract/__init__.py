"""Features of images and texts, so that models of either can be compared. One small file per extractor."""

from relfit.extract.base import Extractor, Kind, Network
from relfit.extract.catalogue import EXTRACTORS, load
from relfit.extract.run import Extraction, extract_features
from relfit.extract.sources import Item, list_items

__all__ = [
    "EXTRACTORS",
    "Extraction",
    "Extractor",
    "Item",
    "Kind",
    "Network",
    "extract_features",
    "list_items",
    "load",
]
