"""Make src/relfit/paper/digits.npz from scikit-learn's copy of the digits data (run once; the result is committed)."""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

OUT = Path(__file__).parents[1] / "src" / "relfit" / "paper" / "digits.npz"


def main() -> None:
    digits = load_digits()
    images, labels = digits.data.astype(np.uint8), digits.target.astype(np.uint8)
    assert np.array_equal(images, digits.data)
    np.savez_compressed(OUT, images=images, labels=labels)
    print(f"{OUT}: {images.shape}, {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
