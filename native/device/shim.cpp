// The kernels as a library with the few functions of CUDA's driver that graphmill calls
// (src/graphmill/device/driver.py): what starts them on a GPU starts them here, so arguments are packed and read by the
// same code.
#define GRAPHMILL_SHIM
#include "shim.h"

#include "kernels.cu"

#include <ucontext.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

namespace shim {

namespace {

constexpr int kLanes = 32;
constexpr size_t kStackBytes = 1 << 16;

struct Lane {
  ucontext_t context;
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  bool is_over = false;
  int site = 0;  // where it waits
  bool condition = false;
};

struct Warp {
  std::array<Lane, kLanes> lanes;
  ucontext_t scheduler;
  int running = -1;  // lane; -1: there are no fibers now
  bool result = false;
  unsigned first_thread = 0;
  void (*body)(void*) = nullptr;
  void* argument = nullptr;
};

Warp warp;
uint64_t order = 0;

[[noreturn]] void stop(const char* what, int one, int other) {
  std::fprintf(stderr, "%s: lines %d and %d of kernels.cu, block %u, warp of thread %u\n", what, one, other, block.x,
               warp.first_thread);
  std::abort();
}

void run_lane() {
  warp.body(warp.argument);
  warp.lanes[warp.running].is_over = true;
}

void resume(int lane) {
  warp.running = lane;
  thread.x = warp.first_thread + static_cast<unsigned>(lane);
  swapcontext(&warp.scheduler, &warp.lanes[lane].context);
}

void begin(Lane& lane) {
  lane.is_over = false;
  getcontext(&lane.context);
  lane.context.uc_stack.ss_sp = lane.stack.get();
  lane.context.uc_stack.ss_size = kStackBytes;
  lane.context.uc_link = &warp.scheduler;
  makecontext(&lane.context, &run_lane, 0);
}

// Lanes run to where they wait for each other, together, until all are over.
void run_warp() {
  for (Lane& lane : warp.lanes) begin(lane);
  for (;;) {
    for (int i = 0; i < kLanes; ++i) resume(i);
    warp.running = -1;
    const Lane& first = warp.lanes[0];
    warp.result = false;
    for (const Lane& lane : warp.lanes) {
      if (lane.is_over != first.is_over) stop("a lane is over while others wait for it", first.site, lane.site);
      if (!lane.is_over && lane.site != first.site) stop("a warp waits at two places", first.site, lane.site);
      warp.result |= lane.condition;
    }
    if (first.is_over) return;
  }
}

// Blocks as a GPU might take them: 0 ascending, 1 descending, else in an order that the number keys.
std::vector<unsigned> blocks_in_order(unsigned count) {
  std::vector<unsigned> blocks(count);
  std::iota(blocks.begin(), blocks.end(), 0u);
  for (unsigned i = 0; order == 1 && i < count / 2; ++i) std::swap(blocks[i], blocks[count - 1 - i]);
  for (unsigned i = count; order > 1 && i > 1; --i)
    std::swap(blocks[i - 1], blocks[graphmill::draw_below(order, i, i)]);
  return blocks;
}

template <auto kKernel, bool kMeets>
struct Started;

template <class... Arguments, void (*kKernel)(Arguments...), bool kMeets>
struct Started<kKernel, kMeets> {
  static void run(void** given, unsigned blocks, unsigned threads) { run_with(given, blocks, threads, Numbers{}); }

 private:
  using Numbers = std::index_sequence_for<Arguments...>;
  using Values = std::tuple<Arguments...>;

  static void call(void* values) { std::apply(kKernel, *static_cast<Values*>(values)); }

  template <size_t... kNumbers>
  static void run_with(void** given, unsigned blocks, unsigned threads, std::index_sequence<kNumbers...>) {
    Values values{*static_cast<Arguments*>(given[kNumbers])...};
    block_size.x = threads;
    for (const unsigned number : blocks_in_order(blocks)) {
      block.x = number;
      if constexpr (kMeets) {
        warp.body = &call;
        warp.argument = &values;
        for (warp.first_thread = 0; warp.first_thread < threads; warp.first_thread += kLanes) run_warp();
      } else {
        for (thread.x = 0; thread.x < threads; ++thread.x) call(&values);
      }
    }
  }
};

struct Kernel {
  const char* name;
  void (*run)(void**, unsigned, unsigned);
};

#define GRAPHMILL_ONE(NAME) {#NAME, &Started<&NAME, false>::run}
const Kernel kKernels[] = {
    GRAPHMILL_ONE(graphmill_offer),
    GRAPHMILL_ONE(graphmill_draw_uniform),
    {"graphmill_draw_uniform_wide", &Started<&graphmill_draw_uniform_wide, true>::run},
    GRAPHMILL_ONE(graphmill_draw_again),
    GRAPHMILL_ONE(graphmill_draw_weighted),
    GRAPHMILL_ONE(graphmill_targets),
    GRAPHMILL_ONE(graphmill_take_all),
    GRAPHMILL_ONE(graphmill_place_seeds),
    GRAPHMILL_ONE(graphmill_meet),
    GRAPHMILL_ONE(graphmill_is_first),
    GRAPHMILL_ONE(graphmill_settle),
    GRAPHMILL_ONE(graphmill_renumber),
    GRAPHMILL_ONE(graphmill_label),
    GRAPHMILL_ONE(graphmill_forget),
    GRAPHMILL_ONE(graphmill_append),
    GRAPHMILL_ONE(graphmill_induce),
    GRAPHMILL_ONE(graphmill_draw_negatives),
    GRAPHMILL_ONE(graphmill_find_edges),
    GRAPHMILL_ONE(graphmill_fill_table),
    GRAPHMILL_ONE(graphmill_find_rows),
    GRAPHMILL_ONE(graphmill_gather_float32),
    GRAPHMILL_ONE(graphmill_gather_float32_4),
    GRAPHMILL_ONE(graphmill_gather_bfloat16),
    GRAPHMILL_ONE(graphmill_gather_bfloat16_4),
    GRAPHMILL_ONE(graphmill_gather_float16),
    GRAPHMILL_ONE(graphmill_gather_float16_4),
};

constexpr int kNotFound = 500;  // CUDA_ERROR_NOT_FOUND
std::mutex one_launch;

}  // namespace

bool any(bool condition, int site) {
  if (warp.running < 0) stop("a kernel whose lanes meet is not listed as one", site, site);
  Lane& lane = warp.lanes[warp.running];
  lane.condition = condition;
  lane.site = site;
  swapcontext(&lane.context, &warp.scheduler);
  return warp.result;
}

}  // namespace shim

#pragma GCC visibility push(default)
extern "C" {

int cuModuleLoadData(void** loaded, const void*) {
  *loaded = &shim::warp;
  return 0;
}

int cuModuleGetFunction(void** function, void*, const char* name) {
  for (const shim::Kernel& kernel : shim::kKernels) {
    if (std::strcmp(kernel.name, name) != 0) continue;
    *function = const_cast<shim::Kernel*>(&kernel);
    return 0;
  }
  return shim::kNotFound;
}

int cuLaunchKernel(void* function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned, unsigned,
                   void*, void** arguments, void**) {
  const std::lock_guard lock(shim::one_launch);
  static_cast<const shim::Kernel*>(function)->run(arguments, blocks, threads);
  return 0;
}

int cuGetErrorString(int error, const char** text) {
  *text = error == shim::kNotFound ? "named symbol not found" : "an error of the shim";
  return 0;
}

void graphmill_shim_set_order(uint64_t order) { shim::order = order; }
}
#pragma GCC visibility pop
