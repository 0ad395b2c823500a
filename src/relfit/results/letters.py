"""Groups of models that the data do not separate, as letters beside their names."""

from __future__ import annotations

from string import ascii_lowercase

import numpy as np

from relfit.util.arrays import Mask


def letters_of(separated: Mask) -> list[str]:
    """For each of l models in the order of their means the letters of the groups it is in: two
    models have a letter in common exactly if they are not separated.

    The groups are made by insertion and absorption (Piepho 2004): of each group with two
    separated models one copy loses the first and one the second, and groups that lie within
    others are removed.

    Piepho, H.-P. (2004). An algorithm for a letter-based representation of all-pairwise
    comparisons. Journal of Computational and Graphical Statistics 13, 456–466.

    >>> apart = np.zeros((3, 3), dtype=bool)
    >>> apart[0, 2] = apart[2, 0] = True
    >>> letters_of(apart)
    ['a', 'ab', 'b']
    """
    count = len(separated)
    groups = [frozenset(range(count))]
    for i, j in np.argwhere(np.triu(separated | separated.T, 1)).tolist():
        if not any(i in group and j in group for group in groups):
            continue
        split = [part for group in groups for part in _without(group, i, j)]
        kept = sorted(set(split), key=len, reverse=True)
        groups = []
        for group in kept:
            if not any(group < other for other in kept):
                groups.append(group)
    groups.sort(key=sorted)
    names = [_letter(k) for k in range(len(groups))]
    return [
        "".join(name for name, group in zip(names, groups, strict=True) if model in group)
        for model in range(count)
    ]


def _without(group: frozenset[int], i: int, j: int) -> list[frozenset[int]]:
    """The group, or if it has both models a copy without each of them."""
    return [group - {i}, group - {j}] if i in group and j in group else [group]


def _letter(k: int) -> str:
    """a to z, then A to Z, then numbers in brackets."""
    alphabet = ascii_lowercase + ascii_lowercase.upper()
    return alphabet[k] if k < len(alphabet) else f"[{k + 1}]"
