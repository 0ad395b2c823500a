"""Tables for pages, and the marks between which scripts put them."""


def plus_minus(value, error, digits=3):
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def table(titles, rows):
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def written(text, parts):
    """The page with each part put between its marks."""
    for name, part in parts.items():
        start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(start)
        _, found, after = rest.partition(end)
        if not found:
            raise SystemExit(f"expected {start} … {end} on the page")
        text = f"{before}{start}\n{part}\n{end}{after}"
    return text
