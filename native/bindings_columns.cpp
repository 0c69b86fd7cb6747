// Edges in columns, pairs that are no edges, and memory of batches.
#include <nanobind/stl/optional.h>

#include <utility>

#include "bindings.h"
#include "columns.h"
#include "negatives.h"
#include "reused.h"

namespace graphmill {

namespace {

template <class Id>
EdgeList<Id> edge_list(const AnyIds& sources, const AnyIds& targets, int64_t num_sources, int64_t num_targets) {
  return {static_cast<const Id*>(sources.data()), static_cast<const Id*>(targets.data()), length(sources), num_sources,
          num_targets};
}

bool compress_py(const AnyIds& sources, const AnyIds& targets, int64_t num_sources, Array<int64_t, 1> indptr,
                 Array<int32_t, 1> indices, Array<int64_t, 1> order, int num_threads) {
  const bool narrow = is_narrow(sources);
  const int64_t num_targets = length(indptr) - 1;
  require(narrow == is_narrow(targets) && length(sources) == length(targets), "sources and targets must be alike");
  require(num_targets >= 0 && num_sources >= 0 && num_sources < INT32_MAX, "at most 2^31 - 2 nodes");
  require(length(indices) == length(sources) && length(order) == length(sources),
          "indices and order must be [num_edges]");
  nb::gil_scoped_release release;
  if (narrow)
    return compress(edge_list<int32_t>(sources, targets, num_sources, num_targets), indptr.data(), indices.data(),
                    order.data(), num_threads);
  return compress(edge_list<int64_t>(sources, targets, num_sources, num_targets), indptr.data(), indices.data(),
                  order.data(), num_threads);
}

void sort_rows_by_time_py(const Ids& indptr, Array<int32_t, 1> indices, Array<int64_t, 1> order,
                          Array<int64_t, 1> times, int num_threads) {
  check_columns(indptr, length(indices));
  require(length(order) == length(indices) && length(times) == length(indices), "one order and time for each edge");
  nb::gil_scoped_release release;
  sort_rows_by_time(indptr.data(), length(indptr) - 1, indices.data(), order.data(), times.data(), num_threads);
}

void accumulate_weights_py(const Ids& indptr, const Doubles& weights, Array<double, 1> out) {
  check_columns(indptr, length(weights));
  require(length(out) == length(weights), "one sum for each weight");
  nb::gil_scoped_release release;
  accumulate_weights(indptr.data(), length(indptr) - 1, weights.data(), out.data());
}

// Bytes that other batches had: what they hold is written over.
nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>> reused_bytes(int64_t size) {
  require(size >= 0, "size must not be negative");
  auto* block = new ReusedMemory::Block(ReusedMemory::take(size));
  nb::capsule owner(block, [](void* p) noexcept {
    auto* done = static_cast<ReusedMemory::Block*>(p);
    ReusedMemory::give_back(std::move(*done));
    delete done;
  });
  return nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(block->memory.get(), {static_cast<size_t>(size)}, owner);
}

// Edges that pairs are looked up in; checked once, for many batches.
class EdgeLookup {
 public:
  EdgeLookup(Ids indptr, Locals sources, std::optional<Ids> times, int64_t num_sources)
      : indptr_(indptr), sources_(sources), times_(times), num_sources_(num_sources) {
    check_columns(indptr, length(sources));
    require(!times || length(*times) == length(sources), "one time for each edge");
  }

  int64_t num_sources() const { return num_sources_; }
  int64_t num_targets() const { return length(indptr_) - 1; }
  KnownEdges edges() const { return {indptr_.data(), sources_.data(), data_or_null(times_)}; }

  void find(const Ids& sources, const Ids& targets, const std::optional<Ids>& at, Array<bool, 1> found,
            int num_threads) const {
    const int64_t count = length(found);
    require(length(sources) == count && length(targets) == count && (!at || length(*at) == count),
            "pairs, times and results must be alike");
    for (int64_t i = 0; i < count; ++i)
      require(static_cast<uint64_t>(sources.data()[i]) < static_cast<uint64_t>(num_sources()) &&
                  static_cast<uint64_t>(targets.data()[i]) < static_cast<uint64_t>(num_targets()),
              "an end of a pair is no node");
    nb::gil_scoped_release release;
    find_edges(edges(), sources.data(), targets.data(), data_or_null(at), count, found.data(), num_threads);
  }

 private:
  Ids indptr_;
  Locals sources_;
  std::optional<Ids> times_;
  int64_t num_sources_;
};

int64_t draw_negatives_py(const EdgeLookup* known, int64_t num_sources, int64_t num_targets,
                          std::optional<Doubles> source_weights, std::optional<Doubles> target_weights,
                          std::optional<Ids> source_times, std::optional<Ids> target_times, std::optional<Ids> given,
                          std::optional<Ids> at, std::optional<Ids> numbers, uint64_t key, int tries,
                          Array<int64_t, 1> source_out, Array<int64_t, 1> target_out, int num_threads) {
  const int64_t count = length(source_out);
  require(!known || (known->num_sources() == num_sources && known->num_targets() == num_targets),
          "known edges are between these nodes");
  require(num_sources > 0 && num_targets > 0, "there are no nodes to draw");
  require(!source_weights || length(*source_weights) == num_sources, "one weight for each source");
  require(!target_weights || length(*target_weights) == num_targets, "one weight for each target");
  require(!source_times || length(*source_times) == num_sources, "one time for each source");
  require(!target_times || length(*target_times) == num_targets, "one time for each target");
  require(length(target_out) == count && (!given || length(*given) == count) && (!at || length(*at) == count),
          "results, given sources and times must be alike");
  require(!numbers || length(*numbers) == count, "one number for each");
  for (int64_t i = 0; given && i < count; ++i)
    require(static_cast<uint64_t>(given->data()[i]) < static_cast<uint64_t>(num_sources), "a given source is no node");
  const KnownEdges edges = known ? known->edges() : KnownEdges{};
  const Negatives wanted{count, data_or_null(given), data_or_null(at), data_or_null(numbers), key, tries};
  nb::gil_scoped_release release;
  return draw_negatives(known ? &edges : nullptr,
                        {num_sources, data_or_null(source_weights), data_or_null(source_times)},
                        {num_targets, data_or_null(target_weights), data_or_null(target_times)}, wanted,
                        source_out.data(), target_out.data(), num_threads);
}

}  // namespace

void bind_columns(nb::module_& m) {
  m.def("compress", &compress_py, nb::arg("sources"), nb::arg("targets"), nb::arg("num_sources"),
        nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(), nb::arg("order").noconvert(),
        nb::arg("num_threads"), "Put edges into columns. True: each stays where it is, and order was not written.");
  m.def("sort_rows_by_time", &sort_rows_by_time_py, nb::arg("indptr"), nb::arg("indices").noconvert(),
        nb::arg("order").noconvert(), nb::arg("times").noconvert(), nb::arg("num_threads"));
  m.def("accumulate_weights", &accumulate_weights_py, nb::arg("indptr"), nb::arg("weights"),
        nb::arg("out").noconvert());
  m.def("reused_bytes", &reused_bytes, nb::arg("size"), nb::rv_policy::reference,
        "Memory [size] that comes back when the last array over it is gone; not cleared.");
  nb::class_<EdgeLookup>(m, "EdgeLookup", "Known edges in columns; rows ascend by source, then by time.")
      .def(nb::init<Ids, Locals, std::optional<Ids>, int64_t>(), nb::arg("indptr"), nb::arg("sources"),
           nb::arg("times").none(), nb::arg("num_sources"))
      .def("find", &EdgeLookup::find, nb::arg("sources"), nb::arg("targets"), nb::arg("at").none(),
           nb::arg("found").noconvert(), nb::arg("num_threads"), "Whether each pair is an edge, until a time.");
  m.def("draw_negatives", &draw_negatives_py, nb::kw_only(), nb::arg("known").none(), nb::arg("num_sources"),
        nb::arg("num_targets"), nb::arg("source_weights").none(), nb::arg("target_weights").none(),
        nb::arg("source_times").none(), nb::arg("target_times").none(), nb::arg("given").none(), nb::arg("at").none(),
        nb::arg("numbers").none(), nb::arg("key"), nb::arg("tries"), nb::arg("source_out").noconvert(),
        nb::arg("target_out").noconvert(), nb::arg("num_threads"));
}

}  // namespace graphmill
