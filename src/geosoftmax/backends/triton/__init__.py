"""Triton kernels for GPUs: arrays in, arrays out, one launch for a fused solve or loss.

Each module has one method. `make_tables` makes, from plain tensors, what all its solves read.
`solve` or `loss` launches a kernel. Limits of size are beside the kernel.

=============  =========================================================================
grid           splitting on planes: a solve, or a loss with its slope
rows           splitting with a dense kernel
predict        splitting on planes, to full float32 precision: predictions
predict_rows   the same with a dense kernel
predict_batch  the same for more outputs, in one launch a step
refine         systems on a support, in float64: derivatives of predictions
hull           lines with the absolute value, exactly
policy         trees, exactly
sinkhorn       the symmetric Sinkhorn problem, on planes and with a dense kernel
potential      the loss of the potential layer, with its slope
certificate    the gap and the bracket, for all of them
fp16_split     products on tensor cores
tiles          sizes of tiles, outputs, and the device to launch on
=============  =========================================================================

No kernel synchronises with the host. A problem without a solution gives NaN, and the bracket says
how exact a result is. With ``TRITON_INTERPRET=1`` the same kernels run on CPU tensors, for tests.
"""
