"""Draw the pictures of the README: docs/images/demo.png is what `relfit demo` finds with its default seed."""

from pathlib import Path

from relfit.cli.demo import run

IMAGES = Path(__file__).parents[1] / "docs" / "images"


def main() -> None:
    axes = run(seed=0).plot()
    axes.figure.savefig(IMAGES / "demo.png", dpi=150, bbox_inches="tight", metadata={"Software": None})


if __name__ == "__main__":
    main()
