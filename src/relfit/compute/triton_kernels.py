"""Fused kernels: distances by tensor cores, the kernel function and the sums of one tile,
which never leaves the chip.

Operands are rows of halves, (rows, K) float16, laid out by `triton_backend.operand` so that
one product of a left and a right row is the kernel's argument to about 22 bits. Row numbers,
sizes and units are checked by the callers.
"""

from __future__ import annotations

import triton
import triton.language as tl

# What the argument s of a tile becomes: 2^s, max(s, 1)^e, or (unit·s + offset)^e.
GAUSSIAN = tl.constexpr(0)
RADIAL = tl.constexpr(1)
DOT = tl.constexpr(2)

# Values are multiplied by this before they are split into halves, so that small ones keep their
# digits.
RANGE = tl.constexpr(2.0**14)


@triton.jit
def power(base, EXPONENT: tl.constexpr):
    """base^EXPONENT; common exponents without a logarithm, which negative numbers do not
    have.
    """
    if EXPONENT == -0.5:
        out = tl.rsqrt(base)
    elif EXPONENT == -1.0:
        out = 1.0 / base
    elif EXPONENT == -1.5:
        root = tl.rsqrt(base)
        out = root * root * root
    elif EXPONENT == -2.5:
        root = tl.rsqrt(base)
        square = root * root
        out = square * square * root
    elif EXPONENT == 1.0:
        out = base
    elif EXPONENT == 2.0:
        out = base * base
    elif EXPONENT == 3.0:
        out = base * base * base
    elif EXPONENT == 4.0:
        square = base * base
        out = square * square
    else:
        out = tl.exp2(EXPONENT * tl.log2(base))
    return out


@triton.jit
def exp2_by_products(x):
    """2^x for x ≤ 0 without the special-function unit: the whole part of x to the exponent,
    a polynomial for the rest.

    The coefficients are those of the least relative error on [−½, ½], 7.5e-8 before rounding.
    """
    x = tl.maximum(x, -126.0)
    shifted = x + 12582912.0  # 1.5 · 2²³: what is left of x is whole
    f = x - (shifted - 12582912.0)
    p = 0.0013276471992533978 * f + 0.009675541334453752
    p = p * f + 0.055507132734978495
    p = p * f + 0.24022119723839974
    p = p * f + 0.6931469670647609
    p = p * f + 1.0
    return (p.to(tl.int32, bitcast=True) + (shifted.to(tl.int32, bitcast=True) << 23)).to(
        tl.float32, bitcast=True
    )


@triton.jit
def halved(s, WIDTH: tl.constexpr):
    """Every other eight columns of a tile, and the rest: registers that a thread holds
    anyway.
    """
    return tl.split(tl.permute(tl.reshape(s, (s.shape[0], WIDTH // 16, 2, 8)), (0, 1, 3, 2)))


@triton.jit
def rejoined(a, b, WIDTH: tl.constexpr):
    """What `halved` took apart, (rows, WIDTH/8, 8)."""
    return tl.reshape(tl.permute(tl.join(a, b), (0, 1, 3, 2)), (a.shape[0], WIDTH // 8, 8))


@triton.jit
def exp2_shared(s, WIDTH: tl.constexpr):
    """2^s of a tile, one eighth of it by products: the special-function unit alone would be
    the bottleneck.
    """
    if WIDTH % 64 != 0:
        return tl.exp2(s)
    else:
        first, rest = halved(s, WIDTH)
        second, rest = halved(rest, WIDTH // 2)
        third, last = halved(rest, WIDTH // 4)
        quarter = rejoined(tl.exp2(third), exp2_by_products(last), WIDTH // 4)
        half = rejoined(tl.exp2(second), quarter, WIDTH // 2)
        return tl.reshape(rejoined(tl.exp2(first), half, WIDTH), (s.shape[0], WIDTH))


@triton.jit
def kernel_values(
    s, unit, offset, FORM: tl.constexpr, EXPONENT: tl.constexpr, TIMES_T: tl.constexpr
):
    """The kernel's values, divided by their largest, at the arguments s of a tile."""
    if FORM == GAUSSIAN:
        p = tl.exp2(s)
    elif FORM == RADIAL:
        # Rounding can bring 1 + r² below 1.
        base = tl.maximum(s, 1.0)
        p = power(base, EXPONENT)
        if TIMES_T:
            p = p * (base - 1.0)
    else:
        p = power(s * unit + offset, EXPONENT)
    return p


@triton.jit
def half(x):
    """Float64 numbers rounded to float16, and what is left of them."""
    rounded = x.to(tl.float32).to(tl.float16)
    return rounded, x - rounded.to(tl.float64)


@triton.jit
def operand(
    scaled,
    out,
    n,
    d,
    FORM: tl.constexpr,
    LEFT: tl.constexpr,
    K: tl.constexpr,
    BM: tl.constexpr,
    BD: tl.constexpr,
):
    """Scaled rows (n, d) of float64 as an operand (rows, K), see `triton_backend.operand`;
    BD ≥ d and K − 3d.
    """
    rows = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    k = tl.arange(0, BD)
    inside = rows < n
    x = tl.load(
        scaled + rows[:, None] * d + k[None, :],
        mask=inside[:, None] & (k[None, :] < d),
        other=0.0,
    )
    norm = tl.sum(x * x, 1)
    high, rest = half(x * -2.0 if LEFT and FORM == RADIAL else x)
    low, rest = half(rest)
    first, second = (high, low) if LEFT else (low, high)
    at = out + rows[:, None] * K + k[None, :]
    tl.store(at, first, mask=k[None, :] < d)
    tl.store(at + d, second, mask=k[None, :] < d)
    tl.store(at + 2 * d, high, mask=k[None, :] < d)
    # What the norms add in three halves, three ones, and zeros up to K; right operands have the
    # ones first.
    added = norm * -0.5 if FORM == GAUSSIAN else norm + (1.0 if LEFT else 0.0)
    a, rest = half(added)
    b, rest = half(rest)
    c, rest = half(rest)
    place = k if LEFT else tl.where(k < 3, k + 3, k - 3)
    tail = tl.where((place >= 3) & (k < 6), 1.0, 0.0).to(tl.float16)[None, :]
    tail = tl.where(place[None, :] == 0, a[:, None], tail)
    tail = tl.where(place[None, :] == 1, b[:, None], tail)
    tail = tl.where(place[None, :] == 2, c[:, None], tail)
    if FORM == DOT:
        tail = tl.zeros((BM, BD), tl.float16)
    tail = tl.where(inside[:, None], tail, 0.0).to(tl.float16)
    tl.store(at + 3 * d, tail, mask=3 * d + k[None, :] < K)


@triton.jit
def chunk(
    operand,
    numbers,
    start: tl.constexpr,
    WIDTH: tl.constexpr,
    K: tl.constexpr,
    ACROSS: tl.constexpr,
):
    """Columns start … start + WIDTH of the numbered rows: (rows, WIDTH), or (WIDTH, rows) if
    ACROSS.
    """
    k = start + tl.arange(0, WIDTH)
    if ACROSS:
        pointers = operand + numbers[None, :].to(tl.int64) * K + k[:, None]
    else:
        pointers = operand + numbers[:, None].to(tl.int64) * K + k[None, :]
    return tl.load(pointers)


@triton.jit
def held(
    operand,
    numbers,
    KC: tl.constexpr,
    NK: tl.constexpr,
    TAIL: tl.constexpr,
    ACROSS: tl.constexpr,
):
    """The numbered rows, NK chunks of KC columns and a tail: read once, used by every tile
    of a program.
    """
    K: tl.constexpr = KC * NK + TAIL
    c0 = chunk(operand, numbers, 0, KC, K, ACROSS)
    c1 = chunk(operand, numbers, KC, KC, K, ACROSS) if NK > 1 else c0
    c2 = chunk(operand, numbers, 2 * KC, KC, K, ACROSS) if NK > 2 else c0
    c3 = chunk(operand, numbers, 3 * KC, KC, K, ACROSS) if NK > 3 else c0
    tail = chunk(operand, numbers, NK * KC, TAIL, K, ACROSS) if TAIL > 0 else c0
    return c0, c1, c2, c3, tail


@triton.jit
def arguments_of_rows(
    left, rows, c0, c1, c2, c3, tail, KC: tl.constexpr, NK: tl.constexpr, TAIL: tl.constexpr
):
    """The products of these rows with the held columns."""
    K: tl.constexpr = KC * NK + TAIL
    s = tl.dot(chunk(left, rows, 0, KC, K, False), c0)
    if NK > 1:
        s = tl.dot(chunk(left, rows, KC, KC, K, False), c1, s)
    if NK > 2:
        s = tl.dot(chunk(left, rows, 2 * KC, KC, K, False), c2, s)
    if NK > 3:
        s = tl.dot(chunk(left, rows, 3 * KC, KC, K, False), c3, s)
    if TAIL > 0:
        s = tl.dot(chunk(left, rows, NK * KC, TAIL, K, False), tail, s)
    return s


@triton.jit
def arguments_of_columns(
    c0, c1, c2, c3, tail, right, columns, KC: tl.constexpr, NK: tl.constexpr, TAIL: tl.constexpr
):
    """The products of the held rows with these columns."""
    K: tl.constexpr = KC * NK + TAIL
    s = tl.dot(c0, chunk(right, columns, 0, KC, K, True))
    if NK > 1:
        s = tl.dot(c1, chunk(right, columns, KC, KC, K, True), s)
    if NK > 2:
        s = tl.dot(c2, chunk(right, columns, 2 * KC, KC, K, True), s)
    if NK > 3:
        s = tl.dot(c3, chunk(right, columns, 3 * KC, KC, K, True), s)
    if TAIL > 0:
        s = tl.dot(tail, chunk(right, columns, NK * KC, TAIL, K, True), s)
    return s


@triton.jit
def masked(p, rows, columns, n, m, SYMMETRIC: tl.constexpr, PAIRED: tl.constexpr):
    """The values with those outside the matrix, on or below the diagonal, or of equal
    numbers set to 0.
    """
    if SYMMETRIC:
        inside = (rows[:, None] < columns[None, :]) & (columns[None, :] < m)
    else:
        inside = (rows[:, None] < n) & (columns[None, :] < m)
        if PAIRED:
            inside = inside & (rows[:, None] != columns[None, :])
    return tl.where(inside, p, 0.0)


@triton.jit
def sums(
    left, right, units, row_sums, column_sums, squares, n, m, fixed, unit, offset,
    FORM: tl.constexpr, EXPONENT: tl.constexpr, TIMES_T: tl.constexpr,
    MASKED: tl.constexpr, SYMMETRIC: tl.constexpr, PAIRED: tl.constexpr, SQUARES: tl.constexpr,
    KC: tl.constexpr, NK: tl.constexpr, TAIL: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Row sums, column sums and Σφ² of the tiles of one unit: column tile j with row tiles
    first … last.

    Column sums gather in registers over all tiles of the unit. Sums leave in fixed point,
    64-bit integers of 1/fixed: adding those is exact, so the order in which programs finish
    changes nothing.
    """
    number = tl.program_id(0)
    j = tl.load(units + 3 * number)
    first = tl.load(units + 3 * number + 1)
    last = tl.load(units + 3 * number + 2)
    columns = j * BN + tl.arange(0, BN)
    c0, c1, c2, c3, tail = held(right, columns, KC, NK, TAIL, True)
    gathered = tl.zeros((BM, BN), tl.float32)
    square = tl.zeros((BM,), tl.float32)
    for i in tl.range(first, last, num_stages=STAGES):
        rows = i * BM + tl.arange(0, BM)
        s = arguments_of_rows(left, rows, c0, c1, c2, c3, tail, KC, NK, TAIL)
        p = (
            exp2_shared(s, BN)
            if FORM == GAUSSIAN
            else kernel_values(s, unit, offset, FORM, EXPONENT, TIMES_T)
        )
        if MASKED:
            p = masked(p, rows, columns, n, m, SYMMETRIC, PAIRED)
        gathered += p
        tl.atomic_add(row_sums + rows, (tl.sum(p, 1) * fixed).to(tl.int64), sem="relaxed")
        if SQUARES:
            square += tl.sum(p * p, 1)
    tl.atomic_add(
        column_sums + columns, (tl.sum(gathered, 0) * fixed).to(tl.int64), sem="relaxed"
    )
    if SQUARES:
        tl.store(squares + number, tl.sum(square.to(tl.float64), 0))


@triton.jit
def deep_sums(
    left, right, row_sums, column_sums, squares, n, m, K, fixed, unit, offset, one,
    FORM: tl.constexpr, EXPONENT: tl.constexpr, TIMES_T: tl.constexpr,
    SYMMETRIC: tl.constexpr, PAIRED: tl.constexpr, SQUARES: tl.constexpr,
    KC: tl.constexpr, SEGMENT: tl.constexpr, GROUP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The same for rows too long to be held: one tile a program, the product in chunks of KC
    columns.

    Tensor cores cut off what does not fit their float32 sums; after SEGMENT chunks the sum
    is added by an ordinary, rounded addition. The factor `one` keeps the compiler from
    joining the two.
    """
    number = tl.program_id(0)
    row_tiles = tl.cdiv(n, BM)
    column_tiles = tl.cdiv(m, BN)
    group = number // (row_tiles * GROUP)
    within = number % (row_tiles * GROUP)
    width = tl.minimum(column_tiles - group * GROUP, GROUP)
    i = within // width
    j = group * GROUP + within % width
    square = tl.zeros((BM,), tl.float32)
    live = True
    if SYMMETRIC:
        live = i * BM < (j + 1) * BN
    if live:
        rows = i * BM + tl.arange(0, BM)
        columns = j * BN + tl.arange(0, BN)
        k = tl.arange(0, KC)
        a = left + rows[:, None].to(tl.int64) * K + k[None, :]
        b = right + columns[None, :].to(tl.int64) * K + k[:, None]
        s = tl.zeros((BM, BN), tl.float32)
        part = tl.zeros((BM, BN), tl.float32)
        for c in tl.range(0, K // KC, num_stages=STAGES):
            part = tl.dot(tl.load(a), tl.load(b), part)
            a += KC
            b += KC
            if c % SEGMENT == SEGMENT - 1:
                s += part * one
                part = tl.zeros((BM, BN), tl.float32)
        s += part * one
        p = kernel_values(s, unit, offset, FORM, EXPONENT, TIMES_T)
        p = masked(p, rows, columns, n, m, SYMMETRIC, PAIRED)
        tl.atomic_add(row_sums + rows, (tl.sum(p, 1) * fixed).to(tl.int64), sem="relaxed")
        tl.atomic_add(column_sums + columns, (tl.sum(p, 0) * fixed).to(tl.int64), sem="relaxed")
        square += tl.sum(p * p, 1)
    if SQUARES:
        tl.store(squares + number, tl.sum(square.to(tl.float64), 0))


@triton.jit
def products(
    left, right, high, low, extra, out, extra_out, start, m, padded, tiles, unit, offset, one,
    FORM: tl.constexpr, EXPONENT: tl.constexpr, TIMES_T: tl.constexpr,
    SKIP: tl.constexpr, C: tl.constexpr, EXTRA: tl.constexpr,
    KC: tl.constexpr, NK: tl.constexpr, TAIL: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """out[part, rows, C] = 2¹⁴ values @ (high + low) over the columns of one part, `tiles`
    tiles of BN.

    Right-hand sides (padded, C) are split in halves too; their rows beyond m are 0. Up to
    two EXTRA ones, (2, padded) in float32, are multiplied without tensor cores, into
    extra_out[part, rows, 2]. SKIP leaves out equal numbers. The factor `one` keeps the
    compiler from letting tensor cores, which cut off, add up the tiles.
    """
    part = tl.program_id(1)
    top = start + tl.program_id(0) * BM
    rows = top + tl.arange(0, BM)
    side = tl.arange(0, C)
    c0, c1, c2, c3, tail = held(left, rows, KC, NK, TAIL, False)
    total = tl.zeros((BM, C), tl.float32)
    first = tl.zeros((BM,), tl.float32)
    second = tl.zeros((BM,), tl.float32)
    for j in tl.range(
        part * tiles, tl.minimum((part + 1) * tiles, tl.cdiv(m, BN)), num_stages=STAGES
    ):
        columns = j * BN + tl.arange(0, BN)
        at = columns[:, None].to(tl.int64) * C + side[None, :]
        h = tl.load(high + at)
        l = tl.load(low + at)
        s = arguments_of_columns(c0, c1, c2, c3, tail, right, columns, KC, NK, TAIL)
        p = kernel_values(s, unit, offset, FORM, EXPONENT, TIMES_T)
        if SKIP:  # noqa: SIM102  (the first decides while compiling, the second while running)
            if (top < (j + 1) * BN) & (j * BN < top + BM):
                p = tl.where(rows[:, None] == columns[None, :], 0.0, p)
        p = p * RANGE
        upper = p.to(tl.float16)
        lower = (p - upper.to(tl.float32)).to(tl.float16)
        # The small terms first: tensor cores cut off, and the longer a sum is small the less.
        product = tl.dot(lower, h)
        product = tl.dot(upper, l, product)
        product = tl.dot(upper, h, product)
        total += product * one
        if EXTRA > 0:
            first += tl.sum(p * tl.load(extra + columns)[None, :], 1)
        if EXTRA > 1:
            second += tl.sum(p * tl.load(extra + padded + columns)[None, :], 1)
    at = part.to(tl.int64) * (tl.num_programs(0) * BM) + rows - start
    tl.store(out + at[:, None] * C + side[None, :], total)
    if EXTRA > 0:
        tl.store(extra_out + at * 2, first)
    if EXTRA > 1:
        tl.store(extra_out + at * 2 + 1, second)
