// The Python interface of the core: one file of bindings per subject (bindings_*.cpp), joined here.
#include <dlfcn.h>
#include <malloc.h>
#include <nanobind/stl/string.h>

#include <string>

#include "bindings.h"
#include "pool.h"

namespace {

bool use_openmp(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;
  graphmill::OpenMp runtime{};
  runtime.parallel = reinterpret_cast<decltype(runtime.parallel)>(dlsym(library, "GOMP_parallel"));
  runtime.max_threads = reinterpret_cast<decltype(runtime.max_threads)>(dlsym(library, "omp_get_max_threads"));
  const bool is_there = runtime.parallel != nullptr && runtime.max_threads != nullptr;
  if (is_there) graphmill::share_openmp(runtime);
  return is_there;
}

bool keep_freed_memory() { return mallopt(M_MMAP_THRESHOLD, 32 << 20) == 1 && mallopt(M_TRIM_THRESHOLD, 1 << 30) == 1; }

bool release_freed_memory() { return malloc_trim(0) == 1; }

}  // namespace

NB_MODULE(_native, m) {
  using namespace graphmill;
  nb::set_leak_warnings(false);  // a model that a script still holds when the interpreter ends is not a leak
  m.doc() =
      "Graphmill's core: sampling, gathering, segment and matrix operators, a recurrent cell, attention, "
      "assignment. No torch needed.";
  m.def("keep_freed_memory", &keep_freed_memory,
        "Keep what is freed (up to 1 GiB, in pieces of up to 32 MiB) for the next step instead of handing it to the "
        "system and faulting it in again.");
  m.def("release_freed_memory", &release_freed_memory, "Hand all that is freed to the system. True: there was some.");
  m.def("use_openmp", &use_openmp, nb::arg("path"),
        "Have work of this thread done by the threads of an OpenMP runtime that is loaded from `path`, where as many "
        "are asked for as it has. False: it is not loaded, or has not GNU's interface.");
  m.def("isa", [] { return std::string(kernels().name); }, "The instruction set in use: generic, avx2 or avx512.");
  bind_sampling(m);
  bind_typed_sampling(m);
  bind_columns(m);
  bind_rows(m);
  bind_gathering(m);
  bind_ranges(m);
  bind_segments(m);
  bind_products(m);
  bind_norms(m);
  bind_recurrent(m);
  bind_edge_groups(m);
  bind_attention(m);
  bind_edges(m);
  bind_propagation(m);
  bind_parts(m);
  bind_captures(m);
  bind_ranking(m);
  bind_assignment(m);
  bind_assignment_features(m);
}
