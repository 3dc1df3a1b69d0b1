"""Operator splitting on (QP), in a basis in which ``K`` is diagonal."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from geosoftmax.backends import settings
from geosoftmax.backends.reference.certificate import bracket, certify
from geosoftmax.backends.reference.rows import Kernel, Rows
from geosoftmax.backends.threads import small_on_one_thread

#: Up to so many outputs a product with one matrix takes less time than one product per axis.
FEW_OUTPUTS = 128


class Spectrum(NamedTuple):
    """The kernels of all axes, whose product is ``K``, their eigenvectors, and K's eigenvalues.

    All are float64. Eigenvalues have the shape of a signal over the eigenvectors.
    """

    kernels: list[Tensor]
    bases: list[Tensor]
    eigenvalues: Tensor


def spectrum(kernels: list[Tensor]) -> Spectrum:
    """Diagonalise the kernel of each axis."""
    values, bases = kernels[0].new_ones(()), []
    for K in kernels:
        one, vectors = torch.linalg.eigh(K)
        values = values[..., None] * one.clamp_min(0)
        bases.append(vectors)
    return Spectrum(kernels, bases, values)


def merge_axes(spectrum: Spectrum) -> Spectrum:
    """Return the same kernel as that of a single axis, if it has few outputs."""
    if spectrum.eigenvalues.numel() > FEW_OUTPUTS:
        return spectrum
    kernels, bases = ([functools.reduce(torch.kron, parts)] for parts in spectrum[:2])
    return Spectrum(kernels, bases, spectrum.eigenvalues.flatten())


@small_on_one_thread(3)
def split(
    kernel: Kernel,
    spectrum: Spectrum,
    first_steps: int,
    b: Tensor,
    start: Tensor | None,
    tol: float,
    max_iter: int,
    dtype: torch.dtype,
) -> Rows:
    """Solve by Douglas–Rachford splitting (ADMM), in the form with one array.

    ``u = max(s, 0)`` and, at the solution, ``b - Ku = ρ min(s, 0)``. One step is
    ``s += ω ((K + ρ)⁻¹ (b + ρ|s|) - max(s, 0))``. The first steps have a smaller ``ρ``. Iterates
    are in the given dtype; the certificate is for the problem in the dtype of ``b``.
    """
    rho, relaxation = float(settings.split_penalty(spectrum.eigenvalues)), settings.SPLIT_RELAXATION
    spectrum = merge_axes(spectrum)
    change_at = 0 if start is not None else first_steps
    if change_at:
        rho = settings.SPLIT_FIRST_PENALTY * rho
        relaxation = settings.SPLIT_FIRST_RELAXATION
    resolve = _resolvent(spectrum, rho, dtype)
    kernels = [K.to(dtype) for K in spectrum.kernels]
    rows = b.shape[0]
    iterations = torch.zeros(rows, dtype=torch.int64, device=b.device)
    active = torch.arange(rows, device=b.device)
    least = torch.full((rows,), torch.inf, dtype=dtype, device=b.device)
    part = b.to(dtype).reshape(rows, *spectrum.eigenvalues.shape)
    if start is None:
        s = part / along_axes(kernels, torch.ones_like(part[:1]))
    else:
        s = start.to(dtype).reshape(part.shape)
        s = torch.where(s > 0, s, (part - along_axes(kernels, s)).clamp_max(0) / rho)
    found = s.clamp_min(0).to(b.dtype)  # until a better one is found: u may vanish on the way
    for iteration in range(1, max_iter + 1):
        ahead = resolve(torch.add(part, s.abs(), alpha=rho)).sub_(s.clamp_min(0))
        s.add_(ahead, alpha=relaxation)
        if iteration % settings.SPLIT_CHECK_EVERY and iteration < max_iter:
            continue
        u = s.clamp_min(0)
        gap = bracket(part, u, along_axes(kernels, u))[2].nan_to_num(torch.inf, torch.inf)
        better = gap < least  # the gap is not monotone
        found[active[better]] = u[better].to(found.dtype)
        iterations[active] = iteration
        going = (gap > 0.9 * tol).nonzero()[:, 0]
        if going.numel() == 0:
            break
        least = torch.minimum(gap, least)
        if 0 < change_at <= iteration:
            change_at = 0
            s = torch.where(s < 0, s * settings.SPLIT_FIRST_PENALTY, s)
            rho, relaxation = rho / settings.SPLIT_FIRST_PENALTY, settings.SPLIT_RELAXATION
            resolve = _resolvent(spectrum, rho, dtype)
        if going.numel() < active.numel():
            active, part, s, least = active[going], part[going], s[going], least[going]
    found, lower, upper = certify(kernel, b, found.reshape(b.shape))
    return Rows(found.to(b.dtype), lower, upper, iterations)


def _resolvent(spectrum: Spectrum, rho: float, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """Return the product of rows with ``(K + ρ)⁻¹``."""
    damping, bases = 1 / (spectrum.eigenvalues + rho), spectrum.bases
    if damping.numel() <= FEW_OUTPUTS:  # the axes are merged
        inverse = ((bases[0] * damping) @ bases[0].T).to(dtype)
        return lambda rows: rows @ inverse
    damping = damping.to(dtype)
    there, back = [v.T.to(dtype) for v in bases], [v.to(dtype) for v in bases]
    return lambda rows: along_axes(back, along_axes(there, rows).mul_(damping))


def along_axes(matrices: list[Tensor], rows: Tensor) -> Tensor:
    """Multiply each row, a signal over a grid, by one matrix per axis."""
    shape = rows.shape
    for axis, matrix in enumerate(matrices, start=1):
        side, after = shape[axis], shape[axis + 1 :].numel()
        if after == 1:
            rows = rows.reshape(-1, side) @ matrix.T
        else:
            rows = matrix @ rows.reshape(-1, side, after)
    return rows.reshape(shape)
