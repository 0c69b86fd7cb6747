// Random numbers by the block.
#pragma once
#include <cstdint>

namespace graphmill {

constexpr int64_t kDrawsPerBlock = 8;

struct DrawKernels {
  // drawn[i] = draw_below(key, i, first_bound + i), the draws of Floyd's algorithm; all bounds below 2^32. Whole blocks
  // are written: `drawn` has room for `count` rounded up to a multiple of kDrawsPerBlock.
  void (*below_each)(uint64_t key, uint64_t first_bound, int64_t count, uint32_t* drawn);
};

}  // namespace graphmill
