"""Features of images and texts, so that models of either can be compared. One small file per extractor."""

from __future__ import annotations

from relfit.features.base import EXTRACTORS, Extractor, Kind, Network, load
from relfit.features.run import Extraction, extract_features
from relfit.features.sources import Item, list_items

__all__ = ["EXTRACTORS", "Extraction", "Extractor", "Item", "Kind", "Network", "extract_features", "list_items", "load"]
