"""Plain dense NumPy baselines: what a careful person would write first. Quadratic memory, one model at a time."""

import numpy as np


def squared_distances(x, y):
    return np.maximum((x * x).sum(1)[:, None] + (y * y).sum(1)[None, :] - 2.0 * x @ y.T, 0.0)


def gaussian(x, y, bandwidth):
    return np.exp(-squared_distances(x, y) / (2.0 * bandwidth**2))


def mmd_joint(reference, samples, bandwidth):
    """MMD^2 of every sample to the reference and the covariance of the estimates."""
    n = len(reference)
    values, g_rows, own = [], [], []
    for x in samples:
        m = len(x)
        k_rr, k_xx, k_xr = (gaussian(a, b, bandwidth) for a, b in ((reference, reference), (x, x), (x, reference)))
        rr = (k_rr.sum(1) - np.diag(k_rr)) / (n - 1)
        xx = (k_xx.sum(1) - np.diag(k_xx)) / (m - 1)
        values.append(xx.mean() + rr.mean() - 2.0 * k_xr.mean())
        g_rows.append(2.0 * (rr - k_xr.mean(0)))
        own.append(np.var(2.0 * (xx - k_xr.mean(1))) / (m - 1))
    g = np.array(g_rows)
    g -= g.mean(1, keepdims=True)
    return np.array(values), g @ g.T / (n * (n - 1)) + np.diag(own)


def ksd_joint(reference, scores, bandwidth):
    """KSD^2 of every model (scores at the reference rows) and the covariance of the estimates."""
    x, b2 = reference, bandwidth**2
    n, d = x.shape
    values, rows = [], []
    for s in scores:
        r2 = squared_distances(x, x)
        k = np.exp(-r2 / (2.0 * b2))
        sx = (s * x).sum(1)
        u = (s @ s.T) * k
        u += k * (sx[:, None] - s @ x.T) / b2
        u -= k * (x @ s.T - sx[None, :]) / b2
        u += k * (d / b2 - r2 / b2**2)
        np.fill_diagonal(u, 0.0)
        rows.append(u.sum(1) / (n - 1))
        values.append(rows[-1].mean())
    psi = 2.0 * (np.array(rows) - np.array(values)[:, None])
    return np.array(values), psi @ psi.T / (n * (n - 1))
