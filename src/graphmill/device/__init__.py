"""Sampling, relabelling, look-ups and gathers by kernels of their own, on a GPU or, through a shim, on the CPU.

The kernels are `native/device/kernels.cu` (its README says how they equal the CPU's). `DeviceKernels` starts them on
torch's tensors; `DeviceSampler` and `TypedDeviceSampler` make batches of them, bit-identical to
`graphmill._native`'s, without the host ever waiting for a number unless a fan-out is -1.

**What is proved without a GPU**: the bodies are the CPU's own functions, from the same headers; the same file, compiled
by g++, run for each option of the samplers, in ascending, descending and shuffled order of blocks, gives the CPU's
results bit for bit; arguments are packed and started by the very code that starts them on a GPU (the shim is a library
with the driver's functions); behind ptxas each kernel has at most 40 registers, no stack, no spilled value, for 8.0,
9.0 and 10.0. **What nobody has seen yet**: these kernels on a GPU. Their speed, reads of page-locked memory over
the bus, streams, CUDA graphs, and races between blocks that run at the same time, which a loop over blocks cannot show,
wait for `benchmarks/on_gpu.py`.
"""
