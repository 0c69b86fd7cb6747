// What stands in this folder is compiled twice: for the processor by the C++ compiler, for GPUs by nvcc.
#pragma once

#ifdef __CUDACC__
#define GRAPHMILL_HD __host__ __device__
#else
#define GRAPHMILL_HD
#endif
