"""Which scores are better, told by the name of the metric: one table of names for tables,
logs and monitors.
"""

from __future__ import annotations

import re

from relfit.util.errors import InputError

# Metrics that are better when larger: those whose values may be negative, and those whose
# values are not.
_LARGER_SIGNED = (
    "score rating reward utility win elpd elppd lpd lppd likelihood loglik loglikelihood "
    "logprob r2 mcc kappa comet "
    "bleurt ssim"
)
_LARGER = (
    "acc accuracy accuracies match em f1 f2 fbeta precision recall auc auroc auprc ndcg mrr "
    "hit bleu chrf rouge meteor "
    "bertscore jaccard iou dice psnr correct correctness pass passed solved success "
    "winrate quality"
)
_SMALLER_SIGNED = "loss losses nll nlpd cost deviance aic bic regret"
_SMALLER = (
    "error err rmse mae mse mape smape wape mase wis crps pinball brier perplexity ppl bpb "
    "bpc bpd latency runtime "
    "time seconds duration wer cer ter fid lpips distance divergence wrong incorrect mistake "
    "mismatch fail failed "
    "failure toxicity"
)
# Pairs of words that mean something else than each of them; None is either.
_PAIRS = {
    **dict.fromkeys(
        [
            (rule, "score")
            for rule in ("brier", "crps", "wis", "interval", "energy", "quantile")
        ],
        False,
    ),
    **dict.fromkeys([(rule, "score") for rule in ("log", "logarithmic", "z", "t")], None),
    **dict.fromkeys([("log", "prob"), ("log", "lik")], True),
    **dict.fromkeys([("per", "byte"), ("per", "dim"), ("per", "character")], False),
}
# With one of these words the others say nothing about the direction.
_UNCLEAR = {
    *("no", "not", "non", "negative", "inverse", "minus"),
    *("drop", "gap", "delta", "diff", "difference", "std", "stderr", "sd", "variance"),
}
# A minus before the metric, or 1 minus it.
_MINUS = re.compile(
    r"\s*((neg|minus|negative(?=[ _-]log))(?=[^a-z])|[-−]|(?P<rest>1[ "
    r"_]*[-−]|(1|one)[ _]minus))"
)
_WORDS = {
    word: (larger, signed)
    for words, larger, signed in (
        (_LARGER_SIGNED, True, True),
        (_LARGER, True, False),
        (_SMALLER_SIGNED, False, True),
        (_SMALLER, False, False),
    )
    for word in words.split()
}


def known_direction(metric: str) -> bool | None:
    """True if the metric is known to be better when larger, False if when smaller, None if
    that is not known.

    Words inside the name count, a leading ``neg_`` turns them round, and words that
    contradict each other tell nothing.

    >>> [
    ...     known_direction(name)
    ...     for name in ("acc_norm,none", "valLoss", "neg_mean_squared_error", "score_error")
    ... ]
    [True, False, True, None]
    """
    return _read(metric)[0]


def told_direction(metric: str | None, low: float, high: float) -> tuple[bool | None, str]:
    """The direction that the name of the scores tells, and a note; or None, and why it is
    not known.

    `low` and `high` are the smallest and the largest score: an accuracy or a mean squared
    error below 0 is none.

    >>> told_direction("accuracy", 0.0, 1.0)
    (True, 'accuracy: higher is better, by its name')
    >>> told_direction("rmse", -3.0, 1.0)
    (None, "scores called 'rmse' cannot be negative, and the smallest is -3")
    """
    if metric is None:
        return None, "the table does not name the metric"
    larger, signed, negated = _read(metric)
    if larger is None:
        return None, f"the name {metric!r} does not tell which scores are better"
    if not signed and negated and high > 0.0:
        return None, f"scores called {metric!r} cannot be positive, and the largest is {high:g}"
    if not signed and not negated and low < 0.0:
        return None, f"scores called {metric!r} cannot be negative, and the smallest is {low:g}"
    return larger, f"{metric}: {'higher' if larger else 'lower'} is better, by its name"


def direction_needed(why: str) -> InputError:
    """The error where no name and no log tells which scores are better."""
    return InputError(
        f"higher_is_better: expected a direction, because {why}; pass higher_is_better=True "
        f"if larger scores are "
        "better, or higher_is_better=False if smaller scores are"
    )


def _read(metric: str) -> tuple[bool | None, bool, bool]:
    """The direction, whether values may have either sign, and whether the name begins with a
    minus.
    """
    if " and " in metric or ", " in metric:  # several metrics
        return None, True, False
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", metric.partition(",")[0]).lower()
    minus = _MINUS.match(name)
    words = re.findall(r"[a-z]+[0-9]*", name[minus.end() :] if minus else name)
    rest = minus is not None and minus["rest"] is not None
    # 1-shot accuracy is not 1 minus the accuracy.
    found: list[tuple[bool | None, bool]] = (
        [(None, True)] if rest and words and words[0] not in _WORDS else []
    )
    while words:
        pair = tuple(words[:2])
        if pair in _PAIRS:
            found.append((_PAIRS[pair], True))
            words = words[2:]
            continue
        word = words.pop(0)
        if word in _UNCLEAR:
            found.append((None, True))
        forms = (word, word.rstrip("0123456789"), word.removesuffix("s"))
        found += [_WORDS[form] for form in forms if form in _WORDS][:1]
    directions = {larger for larger, _ in found}
    larger = directions.pop() if len(directions) == 1 else None
    signed = rest or any(signed for _, signed in found)
    if larger is not None and minus:
        larger = not larger
    return larger, signed, minus is not None
