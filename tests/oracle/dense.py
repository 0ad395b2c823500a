"""Slow, plain implementations straight from the formulas. Double loops and dense matrices; no tricks."""

import numpy as np


def gram(kernel, x, y):
    if hasattr(kernel, "gram"):
        return kernel.gram(x, y)
    if kernel.variable == "dot":
        return kernel.phi(x @ y.T)
    return kernel.phi(((x[:, None] - y[None]) ** 2).sum(2))


def off_diagonal_means(matrix):
    n = len(matrix)
    return (matrix.sum(1) - np.diag(matrix)) / (n - 1)


def mmd(reference, samples, kernel):
    """Values, ψR (n, l) and the list of ψX_i for independent samples."""
    n = len(reference)
    rr = off_diagonal_means(gram(kernel, reference, reference))
    values, psi_r, psi_x = [], [], []
    for x in samples:
        m = len(x)
        xr = gram(kernel, x, reference)
        xx = gram(kernel, x, x)
        total_x = sum(xx[c, e] for c in range(m) for e in range(m) if c != e) / (m * (m - 1))
        values.append(total_x + rr.mean() - 2 * xr.sum() / (n * m))
        g = rr - xr.mean(0)
        f = off_diagonal_means(xx) - xr.mean(1)
        psi_r.append(2 * (g - g.mean()))
        psi_x.append(2 * (f - f.mean()))
    return np.array(values), np.array(psi_r).T, psi_x


def mmd_paired(reference, samples, kernel):
    """The paper's form, without the i = j cross terms: mean over i ≠ j of h(z_i, z_j)."""
    n = len(reference)
    values, psi = [], []
    for x in samples:
        h = gram(kernel, x, x) + gram(kernel, reference, reference)
        h = h - gram(kernel, x, reference) - gram(kernel, reference, x)
        np.fill_diagonal(h, 0.0)
        rows = h.sum(1) / (n - 1)
        values.append(rows.mean())
        psi.append(2 * (rows - rows.mean()))
    return np.array(values), np.array(psi).T


def stein_matrix(x, s, kernel):
    """u(x_a, x_b) from the gradients of k written out by hand."""
    n, d = x.shape
    u = np.empty((n, n))
    for a in range(n):
        for b in range(n):
            gap = x[a] - x[b]
            r2 = np.array(gap @ gap)
            phi, dphi, r2ddphi = float(kernel.phi(r2)), float(kernel.dphi(r2)), float(kernel.r2ddphi(r2))
            grad_x, grad_y = 2 * dphi * gap, -2 * dphi * gap
            trace = -2 * d * dphi - 4 * r2ddphi
            u[a, b] = s[a] @ s[b] * phi + s[a] @ grad_y + grad_x @ s[b] + trace
    return u


def ksd(x, scores, kernel):
    """Values and row means g (n, l)."""
    g = np.array([off_diagonal_means(stein_matrix(x, s, kernel)) for s in scores]).T
    return g.mean(0), g


def double_centred_mean_square(matrix, off_diagonal):
    """ζ: the mean of the squares of the doubly centred matrix, without its diagonal where asked."""
    centred = matrix - matrix.mean(0) - matrix.mean(1)[:, None] + matrix.mean()
    if not off_diagonal:
        return (centred**2).mean()
    n = len(matrix)
    return ((centred**2).sum() - (np.diag(centred) ** 2).sum()) / (n * (n - 1))
