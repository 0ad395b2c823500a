"""The papers a methods paragraph cites."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reference:
    """One paper: how it is cited in text, and where it appeared."""

    key: str
    cited: str
    authors: str
    year: int
    title: str
    where: str

    def line(self) -> str:
        """The entry of a list of references."""
        *first, last = self.authors.split(" and ")
        authors = f"{', '.join(first)} and {last}" if first else last
        return f"{authors} ({self.year}). {self.title}. {self.where}."

    def bibtex(self) -> str:
        """The entry for BibTeX."""
        fields = {"author": self.authors, "title": f"{{{self.title}}}"}
        fields |= {"year": str(self.year), "note": self.where}
        inside = "".join(f"  {name} = {{{value}}},\n" for name, value in fields.items())
        return f"@misc{{{self.key},\n{inside}}}"


def _reference(key: str, cited: str, authors: str, title: str, where: str) -> Reference:
    return Reference(key, cited, authors, int(cited[-4:]), title, where)


_ALL = (
    _reference(
        "lim2019kernel",
        "Lim et al., 2019",
        "Lim, J. N. and Yamada, M. and Schölkopf, B. and Jitkrittum, W.",
        "Kernel Stein tests for multiple model comparison",
        "Advances in Neural Information Processing Systems 32",
    ),
    _reference(
        "gretton2012kernel",
        "Gretton et al., 2012",
        "Gretton, A. and Borgwardt, K. M. and Rasch, M. J. and Schölkopf, B. and Smola, A.",
        "A kernel two-sample test",
        "Journal of Machine Learning Research 13, 723–773",
    ),
    _reference(
        "liu2016kernelized",
        "Liu et al., 2016",
        "Liu, Q. and Lee, J. and Jordan, M.",
        "A kernelized Stein discrepancy for goodness-of-fit tests",
        "International Conference on Machine Learning, PMLR 48, 276–284",
    ),
    _reference(
        "chwialkowski2016kernel",
        "Chwialkowski et al., 2016",
        "Chwialkowski, K. and Strathmann, H. and Gretton, A.",
        "A kernel test of goodness of fit",
        "International Conference on Machine Learning, PMLR 48, 2606–2615",
    ),
    _reference(
        "jitkrittum2018informative",
        "Jitkrittum et al., 2018",
        "Jitkrittum, W. and Kanagawa, H. and Sangkloy, P. and Hays, J. and Schölkopf, B. and Gretton, A.",
        "Informative features for model comparison",
        "Advances in Neural Information Processing Systems 31",
    ),
    _reference(
        "jitkrittum2017linear",
        "Jitkrittum et al., 2017",
        "Jitkrittum, W. and Xu, W. and Szabó, Z. and Fukumizu, K. and Gretton, A.",
        "A linear-time kernel goodness-of-fit test",
        "Advances in Neural Information Processing Systems 30",
    ),
    _reference(
        "zaremba2013btest",
        "Zaremba et al., 2013",
        "Zaremba, W. and Gretton, A. and Blaschko, M.",
        "B-test: a non-parametric, low variance kernel two-sample test",
        "Advances in Neural Information Processing Systems 26",
    ),
    _reference(
        "blom1976incomplete",
        "Blom, 1976",
        "Blom, G.",
        "Some properties of incomplete U-statistics",
        "Biometrika 63(3), 573–580",
    ),
    _reference(
        "lee2016exact",
        "Lee et al., 2016",
        "Lee, J. D. and Sun, D. L. and Sun, Y. and Taylor, J. E.",
        "Exact post-selection inference, with application to the lasso",
        "The Annals of Statistics 44(3), 907–927",
    ),
    _reference(
        "fithian2014optimal",
        "Fithian et al., 2014",
        "Fithian, W. and Sun, D. and Taylor, J.",
        "Optimal inference after model selection",
        "arXiv:1410.2597",
    ),
    _reference(
        "tian2018selective",
        "Tian and Taylor, 2018",
        "Tian, X. and Taylor, J.",
        "Selective inference with a randomized response",
        "The Annals of Statistics 46(2), 679–710",
    ),
    _reference(
        "andrews2010inference",
        "Andrews and Soares, 2010",
        "Andrews, D. W. K. and Soares, G.",
        "Inference for parameters defined by moment inequalities using generalized moment selection",
        "Econometrica 78(1), 119–157",
    ),
    _reference(
        "hansen2011model",
        "Hansen et al., 2011",
        "Hansen, P. R. and Lunde, A. and Nason, J. M.",
        "The model confidence set",
        "Econometrica 79(2), 453–497",
    ),
    _reference(
        "benjamini1995controlling",
        "Benjamini and Hochberg, 1995",
        "Benjamini, Y. and Hochberg, Y.",
        "Controlling the false discovery rate: a practical and powerful approach to multiple testing",
        "Journal of the Royal Statistical Society B 57(1), 289–300",
    ),
    _reference(
        "benjamini2001control",
        "Benjamini and Yekutieli, 2001",
        "Benjamini, Y. and Yekutieli, D.",
        "The control of the false discovery rate in multiple testing under dependency",
        "The Annals of Statistics 29(4), 1165–1188",
    ),
    _reference(
        "holm1979simple",
        "Holm, 1979",
        "Holm, S.",
        "A simple sequentially rejective multiple test procedure",
        "Scandinavian Journal of Statistics 6(2), 65–70",
    ),
    _reference(
        "binkowski2018demystifying",
        "Bińkowski et al., 2018",
        "Bińkowski, M. and Sutherland, D. J. and Arbel, M. and Gretton, A.",
        "Demystifying MMD GANs",
        "International Conference on Learning Representations",
    ),
    _reference(
        "jayasumana2024rethinking",
        "Jayasumana et al., 2024",
        "Jayasumana, S. and Ramalingam, S. and Veit, A. and Glasner, D. and Chakrabarti, A. and Kumar, S.",
        "Rethinking FID: towards a better evaluation metric for image generation",
        "IEEE/CVF Conference on Computer Vision and Pattern Recognition",
    ),
)
REFERENCES = {reference.key: reference for reference in _ALL}
