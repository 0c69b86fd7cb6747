// CUDA's words for g++: the same kernels.cu as a GPU runs, on the CPU. A grid is a loop over blocks, a block a loop
// over threads. Where lanes of a warp meet (`__any_sync`), each lane is a fiber that waits for the others; a warp whose
// lanes wait at different places, or end while others wait, ends the process with the reason.
#pragma once
#include <cstdint>

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)

namespace shim {

struct Index {
  unsigned x = 0;
};

inline Index thread, block, block_size;

// Wait at `site` (a line) until all lanes of the warp do. Returns whether the condition holds for any of them.
bool any(bool condition, int site);

}  // namespace shim

#define threadIdx ::shim::thread
#define blockIdx ::shim::block
#define blockDim ::shim::block_size

#define __any_sync(mask, condition) (static_cast<void>(mask), ::shim::any(condition, __LINE__))
#define __syncwarp() ::shim::any(false, __LINE__)

template <class T>
inline T atomicMin(T* at, T value) {
  const T old = *at;
  if (value < old) *at = value;
  return old;
}

template <class T>
inline T atomicCAS(T* at, T expected, T value) {
  const T old = *at;
  if (old == expected) *at = value;
  return old;
}
