// Which build of the kernels this processor runs.
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>

#if defined(GRAPHMILL_X86)
#include <cpuid.h>
#endif

#include "kernels.h"

namespace graphmill {

extern const Kernels kernels_generic;
#if defined(GRAPHMILL_X86)
extern const Kernels kernels_avx2;
extern const Kernels kernels_avx512;
#endif

namespace {

#if defined(GRAPHMILL_X86)
bool has_all(uint64_t value, uint64_t bits) { return (value & bits) == bits; }

// Asked of the processor itself: __builtin_cpu_supports always says no where the compiler is zig, which links a
// run-time library without it.
struct Processor {
  bool has_avx2 = false, has_avx512 = false;

  Processor() {
    uint32_t eax, ebx, ecx, edx;
    if (!__get_cpuid_count(1, 0, &eax, &ebx, &ecx, &edx) || !has_all(ecx, bit_OSXSAVE | bit_FMA | bit_F16C)) return;
    // What the system saves when threads take turns: 128-bit and 256-bit registers, then masks and 512-bit ones.
    const uint64_t saved = saved_registers();
    if (!has_all(saved, 0x6) || !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return;
    has_avx2 = has_all(ebx, bit_AVX2);
    const uint32_t avx512 = uint32_t{bit_AVX512F} | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    has_avx512 = has_avx2 && has_all(saved, 0xe6) && has_all(ebx, avx512);
  }

  static uint64_t saved_registers() {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return uint64_t{high} << 32 | low;
  }
};
#endif

const Kernels& choose() {
  const char* wish = std::getenv("GRAPHMILL_ISA");
  const std::string asked = wish ? wish : "";
  if (asked == "generic") return kernels_generic;
#if defined(GRAPHMILL_X86)
  const Processor processor;
  if (processor.has_avx512 && (asked.empty() || asked == "avx512")) return kernels_avx512;
  if (processor.has_avx2 && (asked.empty() || asked == "avx2")) return kernels_avx2;
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
