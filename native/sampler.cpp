#include "sampler.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>

#include "pool.h"
#include "shared/random.h"

namespace graphmill {

namespace {

constexpr int64_t kRowsPerChunk = 128;
constexpr int64_t kRowsWorthHelp = 4096;  // a hop with fewer rows is over before a sleeping helper wakes

[[noreturn]] void refuse(const std::string& what, int64_t value, const std::string& of, int64_t count) {
  throw std::invalid_argument(what + " " + std::to_string(value) + " is not one of the " + std::to_string(count) + " " +
                              of);
}

int threads_for(int64_t num_rows, int num_threads) { return num_rows < kRowsWorthHelp ? 1 : num_threads; }

}  // namespace

template <class Index>
void Sampler<Index>::sample_hop(Batch& batch, Spans& spans, int64_t fanout, uint64_t key, int num_threads) const {
  const int64_t num_rows = batch.frontier_size();
  int64_t* const ends = batch.begin_hop();
  picker_.locate({batch.frontier(), batch.frontier(), num_rows, fanout, key}, spans, ends);
  batch.reserve_edges();
  const Rows rows{batch.frontier(), batch.frontier(), num_rows, fanout, key};  // its current address

  // Helpers pick; the caller picks too, and it alone relabels, so that positions stay in its cache.
  const int64_t num_chunks = (num_rows + kRowsPerChunk - 1) / kRowsPerChunk;
  std::vector<std::atomic<bool>> picked(num_chunks);
  int64_t next = 0;  // first chunk that is not relabelled yet
  const auto end_of = [&](int64_t chunk) { return std::min((chunk + 1) * kRowsPerChunk, num_rows); };
  const auto relabel_what_is_ready = [&] {
    for (; next < num_chunks && picked[next].load(std::memory_order_acquire); ++next) {
      const int64_t first = ends[next * kRowsPerChunk];
      batch.relabel(batch.indices() + first, first, ends[end_of(next)] - first);
    }
  };
  const auto caller = std::this_thread::get_id();
  const auto pick_chunks = [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin / kRowsPerChunk; chunk * kRowsPerChunk < end; ++chunk) {
      picker_.pick(rows, spans, ends, chunk * kRowsPerChunk, end_of(chunk), batch.indices(), batch.edge_ids());
      picked[chunk].store(true, std::memory_order_release);
      if (std::this_thread::get_id() == caller) relabel_what_is_ready();
    }
  };
  ThreadPool::instance().parallel_for(num_rows, kRowsPerChunk, threads_for(num_rows, num_threads), pick_chunks);
  relabel_what_is_ready();
  batch.end_hop();
}

template <class Index>
std::shared_ptr<Neighbourhood> Sampler<Index>::sample(const int64_t* seeds, int64_t num_seeds,
                                                      const std::vector<int64_t>& fanouts, uint64_t key, bool resample,
                                                      bool with_edge_ids, int num_threads) {
  Batch batch(relabeller_, seeds, num_seeds, resample, with_edge_ids);
  thread_local Spans spans;
  for (size_t hop = 0; hop < fanouts.size(); ++hop)
    sample_hop(batch, spans, fanouts[hop], subkey(key, hop), num_threads);
  return batch.result();
}

template <class Index>
std::unique_ptr<Picked> pick(const Picker<Index>& picker, const Rows& rows, int num_threads) {
  for (int64_t i = 0; i < rows.count; ++i)
    if (rows.places[i] < 0 || rows.places[i] >= picker.num_rows())
      refuse("place", rows.places[i], "rows of the graph", picker.num_rows());
  auto out = std::make_unique<Picked>();
  out->indptr.resize(rows.count + 1);
  Spans spans;
  picker.locate(rows, spans, out->indptr.data());
  out->sources.reserve(out->num_edges());
  out->edge_ids.reserve(out->num_edges());
  ThreadPool::instance().parallel_for(
      rows.count, kRowsPerChunk, threads_for(rows.count, num_threads), [&](int64_t begin, int64_t end) {
        for (int64_t first = begin; first < end; first += kRowsPerChunk)
          picker.pick(rows, spans, out->indptr.data(), first, std::min(first + kRowsPerChunk, end), out->sources.data(),
                      out->edge_ids.data());
      });
  return out;
}

void relabel(Batch& batch, int64_t num_nodes, const int64_t* indptr, int64_t num_rows, const int64_t* sources,
             const int64_t* edge_ids) {
  if (num_rows != batch.frontier_size())
    throw std::invalid_argument("the hop asks for " + std::to_string(batch.frontier_size()) + " rows, and " +
                                std::to_string(num_rows) + " were picked");
  for (int64_t row = 0; row < num_rows; ++row)
    if (indptr[row] > indptr[row + 1]) throw std::invalid_argument("indptr falls at row " + std::to_string(row));
  const int64_t num_edges = indptr[num_rows];
  for (int64_t edge = 0; edge < num_edges; ++edge)
    if (sources[edge] < 0 || sources[edge] >= num_nodes)
      refuse("source", sources[edge], "nodes of the graph", num_nodes);
  int64_t* const ends = batch.begin_hop();
  for (int64_t row = 0; row < num_rows; ++row) ends[row + 1] = ends[0] + indptr[row + 1];
  batch.reserve_edges();
  const int64_t first = ends[0];
  if (batch.edge_ids()) std::copy_n(edge_ids, num_edges, batch.edge_ids() + first);
  batch.relabel(sources, first, num_edges);
  batch.end_hop();
}

template class Sampler<int32_t>;
template class Sampler<int64_t>;
template std::unique_ptr<Picked> pick(const Picker<int32_t>&, const Rows&, int);
template std::unique_ptr<Picked> pick(const Picker<int64_t>&, const Rows&, int);

}  // namespace graphmill
