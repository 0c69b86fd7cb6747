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

// The tables of one instruction set, which the units of kernels/ define.
#define GRAPHMILL_TABLES(isa)                                        \
  namespace isa {                                                    \
  extern const DrawKernels draws;                                    \
  extern const RowKernels rows;                                      \
  extern const ProductKernels products;                              \
  extern const NormKernels norms;                                    \
  extern const SparseKernels sparse;                                 \
  extern const RecurrentKernels recurrent;                           \
  extern const AttentionKernels<float> attention_float;              \
  extern const AttentionKernels<double> attention_double;            \
  extern const AssignmentKernels<float, double> assignment_float;    \
  extern const AssignmentKernels<double, double> assignment_double;  \
  extern const AssignmentKernels<int64_t, int64_t> assignment_int64; \
  extern const AssignmentFeatureKernels assignment_features;         \
  extern const RankingKernels ranking;                               \
  constinit const Kernels all{#isa,                                  \
                              draws,                                 \
                              rows,                                  \
                              products,                              \
                              norms,                                 \
                              sparse,                                \
                              recurrent,                             \
                              attention_float,                       \
                              attention_double,                      \
                              assignment_float,                      \
                              assignment_double,                     \
                              assignment_int64,                      \
                              assignment_features,                   \
                              ranking};                              \
  }

GRAPHMILL_TABLES(generic)
#if defined(GRAPHMILL_X86)
GRAPHMILL_TABLES(avx2)
GRAPHMILL_TABLES(avx512)
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
  if (asked == "generic") return generic::all;
#if defined(GRAPHMILL_X86)
  const Processor processor;
  if (processor.has_avx512 && (asked.empty() || asked == "avx512")) return avx512::all;
  if (processor.has_avx2 && (asked.empty() || asked == "avx2")) return avx2::all;
#endif
  if (!asked.empty())
    throw std::runtime_error("GRAPHMILL_ISA=" + asked +
                             " is not one of generic, avx2, avx512 that this processor runs");
  return generic::all;
}

}  // namespace

const Kernels& kernels() {
  static const Kernels& chosen = choose();
  return chosen;
}

}  // namespace graphmill
