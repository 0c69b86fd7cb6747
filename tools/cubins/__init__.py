"""The kernels of native/device, compiled: for GPUs (`build.py`), and for the CPU (`shim.py`)."""
