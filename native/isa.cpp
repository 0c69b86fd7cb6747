// Which build of the kernels this processor runs.
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "kernels.h"

namespace graphmill {

extern const Kernels kernels_generic;
#if defined(GRAPHMILL_X86)
extern const Kernels kernels_avx2;
extern const Kernels kernels_avx512;
#endif

namespace {

const Kernels& choose() {
  const char* wish = std::getenv("GRAPHMILL_ISA");
  const std::string asked = wish ? wish : "";
  if (asked == "generic") return kernels_generic;
#if defined(GRAPHMILL_X86)
  const bool has_avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (has_avx512 && (asked.empty() || asked == "avx512")) return kernels_avx512;
  if (has_avx2 && (asked.empty() || asked == "avx2")) return kernels_avx2;
#endif
  if (!asked.empty())
    throw std::runtime_error("GRAPHMILL_ISA=" + asked +
                             " is not one of generic, avx2, avx512 that this processor runs");
  return kernels_generic;
}

}  // namespace

const Kernels& kernels() {
  static const Kernels& chosen = choose();
  return chosen;
}

}  // namespace graphmill
