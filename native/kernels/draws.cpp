// Many draws at once.
#include "draws.h"

#include <cstdint>

#include "../shared/random.h"

namespace graphmill {
namespace {

void draw_below_each(uint64_t key, uint64_t first_bound, int64_t count, uint32_t* drawn) {
  for (int64_t block = 0; block < count; block += kDrawsPerBlock)
    for (int64_t i = block; i < block + kDrawsPerBlock; ++i)
      drawn[i] = static_cast<uint32_t>((mix64(key + (i + 1) * kGolden) >> 32) * (first_bound + i) >> 32);
}

}  // namespace

namespace GRAPHMILL_ISA {

extern const DrawKernels draws;
const DrawKernels draws = {draw_below_each};

}  // namespace GRAPHMILL_ISA
}  // namespace graphmill
