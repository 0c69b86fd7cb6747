// What stands in this folder is compiled twice: for the processor by the C++ compiler, for GPUs by nvcc.
#pragma once

#ifdef __CUDACC__
#define GRAPHMILL_HD __host__ __device__
#define GRAPHMILL_BY_FOUR _Pragma("unroll 4")  // before a loop: unrolled further, it takes too many registers
#else
#define GRAPHMILL_HD
#define GRAPHMILL_BY_FOUR
#endif
