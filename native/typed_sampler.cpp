#include "typed_sampler.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "pool.h"
#include "shared/random.h"

namespace graphmill {

namespace {

constexpr int64_t kSeedsPerChunk = 16;  // whose subgraphs one thread grows at a time
constexpr int64_t kEdgesPerChunk = 1 << 15;
constexpr int64_t kAhead = 24;                       // edges whose number is fetched ahead of its use
constexpr uint64_t kOfRelation = uint64_t{1} << 32;  // coordinates of relations, apart from those of hops

struct Seed {
  int type;
  int64_t node;
  const int64_t* time;
};

std::vector<Seed> checked(const std::vector<TypedSeeds>& seeds, const std::vector<int64_t>& num_nodes) {
  std::vector<Seed> all;
  for (const TypedSeeds& of : seeds)
    for (int64_t i = 0; i < of.count; ++i) {
      if (of.nodes[i] < 0 || of.nodes[i] >= num_nodes[of.type])
        throw std::invalid_argument("seed " + std::to_string(of.nodes[i]) + " is not one of the " +
                                    std::to_string(num_nodes[of.type]) + " nodes of its type");
      all.push_back({of.type, of.nodes[i], of.times ? of.times + i : nullptr});
    }
  return all;
}

// Subgraphs put together: nodes by hop, then subgraph, then as they were met; edges alike.
class Assembly {
 public:
  Assembly(const std::vector<Relation>& relations, size_t num_types, const SampleRule& rule)
      : relations_(relations),
        rule_(rule),
        num_types_(num_types),
        node_hops_(rule.num_hops + 1),
        edge_hops_(rule.induced ? 1 : rule.num_hops) {}

  void add(const Growth& growth) {
    growths_.push_back(&growth);
    first_subgraph_.push_back(num_subgraphs_);
    num_subgraphs_ += static_cast<int64_t>(growth.nodes_per_hop.size() / (node_hops_ * num_types_));
  }

  std::shared_ptr<TypedSubgraph> put_together(int num_threads) {
    auto out = std::make_shared<TypedSubgraph>();
    out->nodes.resize(num_types_);
    out->edges.resize(relations_.size());
    node_offsets_ = offsets(num_types_, node_hops_, [](const Growth& g) -> const auto& { return g.nodes_per_hop; });
    edge_offsets_ =
        offsets(relations_.size(), edge_hops_, [](const Growth& g) -> const auto& { return g.edges_per_hop; });
    for (size_t type = 0; type < num_types_; ++type) {
      auto& nodes = out->nodes[type];
      nodes.per_hop = node_totals(type);
      int64_t count = 0;
      for (const int64_t of_hop : nodes.per_hop) count += of_hop;
      nodes.ids = Line<int64_t>(count);
      if (rule_.disjoint) nodes.subgraph = Line<int64_t>(count);
    }
    for (size_t relation = 0; relation < relations_.size(); ++relation) {
      auto& edges = out->edges[relation];
      std::vector<int64_t> per_hop(edge_hops_, 0);
      int64_t count = 0;
      for (size_t growth = 0; growth < growths_.size(); ++growth) {
        const auto& counts = growths_[growth]->edges_per_hop;
        for (size_t i = relation; i < counts.size(); i += relations_.size()) {
          per_hop[i / relations_.size() % edge_hops_] += counts[i];
          count += counts[i];
        }
      }
      if (!rule_.induced) edges.per_hop = per_hop;
      edges.ends = Line<int64_t>(2 * count);
      edges.ids = Line<int64_t>(count);
    }
    ThreadPool::instance().parallel_for(static_cast<int64_t>(growths_.size()), 1, num_threads,
                                        [&](int64_t begin, int64_t end) {
                                          for (int64_t i = begin; i < end; ++i) {
                                            copy_nodes(*out, i);
                                            copy_edges(*out, i, growths_.size() == 1 ? num_threads : 1);
                                          }
                                        });
    return out;
  }

 private:
  // Where the nodes (edges) of each (subgraph, hop, type) begin among those of the type.
  template <class Counts>
  std::vector<int64_t> offsets(size_t width, size_t num_hops, const Counts& counts_of) const {
    std::vector<int64_t> begins(num_subgraphs_ * num_hops * width), next(width, 0);
    for (size_t hop = 0; hop < num_hops; ++hop)
      for (size_t growth = 0, subgraph = 0; growth < growths_.size(); ++growth) {
        const std::vector<int64_t>& counts = counts_of(*growths_[growth]);
        for (size_t at = hop * width; at < counts.size(); at += num_hops * width, ++subgraph)
          for (size_t i = 0; i < width; ++i) {
            begins[(subgraph * num_hops + hop) * width + i] = next[i];
            next[i] += counts[at + i];
          }
      }
    return begins;
  }

  std::vector<int64_t> node_totals(size_t type) const {
    std::vector<int64_t> totals(node_hops_, 0);
    for (const Growth* growth : growths_)
      for (size_t i = type; i < growth->nodes_per_hop.size(); i += num_types_)
        totals[i / num_types_ % node_hops_] += growth->nodes_per_hop[i];
    return totals;
  }

  int64_t subgraphs_of(size_t growth) const {
    const size_t next = growth + 1;
    return (next < growths_.size() ? first_subgraph_[next] : num_subgraphs_) - first_subgraph_[growth];
  }

  void copy_nodes(TypedSubgraph& out, size_t number) const {
    const Growth& growth = *growths_[number];
    std::vector<int64_t> from(num_types_, 0);
    const int64_t* counts = growth.nodes_per_hop.data();
    const int64_t* to = node_offsets_.data() + first_subgraph_[number] * node_hops_ * num_types_;
    for (int64_t i = 0; i < subgraphs_of(number); ++i)
      for (size_t hop = 0; hop < node_hops_; ++hop)
        for (size_t type = 0; type < num_types_; ++type, ++counts, ++to) {
          std::copy_n(growth.types[type].ids.data() + from[type], *counts, out.nodes[type].ids.values.get() + *to);
          if (rule_.disjoint)
            std::fill_n(out.nodes[type].subgraph.values.get() + *to, *counts, first_subgraph_[number] + i);
          from[type] += *counts;
        }
  }

  // Local ids count within a subgraph; in the batch those of its hops stand apart.
  struct Shifts {
    std::vector<int64_t> ends, shift;  // by hop: nodes up to it, what is added to the local ids of its nodes
    int64_t of(int64_t local) const {
      size_t hop = 0;
      while (local >= ends[hop]) ++hop;
      return local + shift[hop];
    }
  };

  Shifts shifts(size_t growth, int64_t subgraph, size_t type) const {
    Shifts found{std::vector<int64_t>(node_hops_), std::vector<int64_t>(node_hops_)};
    int64_t num_nodes = 0;
    for (size_t hop = 0; hop < node_hops_; ++hop) {
      const size_t at = (subgraph * node_hops_ + hop) * num_types_ + type;
      found.shift[hop] = node_offsets_[first_subgraph_[growth] * node_hops_ * num_types_ + at] - num_nodes;
      found.ends[hop] = num_nodes += growths_[growth]->nodes_per_hop[at];
    }
    return found;
  }

  void copy_edges(TypedSubgraph& out, size_t number, int num_threads) const {
    const Growth& growth = *growths_[number];
    for (size_t relation = 0; relation < relations_.size(); ++relation) {
      const Relation& columns = relations_[relation];
      const Growth::OfRelation& from = growth.relations[relation];
      auto& edges = out.edges[relation];
      int64_t *sources = edges.ends.values.get(), *targets = sources + edges.ids.count, *ids = edges.ids.values.get();
      int64_t first = 0;
      for (int64_t subgraph = 0; subgraph < subgraphs_of(number); ++subgraph) {
        const Shifts of_source = shifts(number, subgraph, columns.source);
        const Shifts of_target = shifts(number, subgraph, columns.target);
        for (size_t hop = 0; hop < edge_hops_; ++hop) {
          const size_t at = (subgraph * edge_hops_ + hop) * relations_.size() + relation;
          const int64_t count = growth.edges_per_hop[at];
          const int64_t to = edge_offsets_[first_subgraph_[number] * edge_hops_ * relations_.size() + at];
          ThreadPool::instance().parallel_for(count, kEdgesPerChunk, num_threads, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
              if (columns.order && i + kAhead < end)
                __builtin_prefetch(columns.order + from.edges.data()[first + i + kAhead]);
              sources[to + i] = of_source.of(from.sources.data()[first + i]);
              targets[to + i] = of_target.of(from.targets.data()[first + i]);
              const int64_t edge = from.edges.data()[first + i];
              ids[to + i] = columns.order ? columns.order[edge] : edge;
            }
          });
          first += count;
        }
      }
    }
  }

  const std::vector<Relation>& relations_;
  const SampleRule& rule_;
  size_t num_types_, node_hops_, edge_hops_;
  std::vector<const Growth*> growths_;
  std::vector<int64_t> first_subgraph_;
  int64_t num_subgraphs_ = 0;
  std::vector<int64_t> node_offsets_, edge_offsets_;
};

}  // namespace

std::unique_ptr<Growth> TypedSampler::take(bool apart) {
  std::unique_ptr<Growth> growth;
  {
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock && !kept_.empty()) {
      growth = std::move(kept_.back());
      kept_.pop_back();
    }
  }
  if (!growth) growth = std::make_unique<Growth>(relations_, num_nodes_);
  growth->clear(apart);
  return growth;
}

void TypedSampler::give_back(std::unique_ptr<Growth> growth) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) kept_.push_back(std::move(growth));
}

// From the seeds on, which are placed.
void TypedSampler::grow(Growth& growth, const SampleRule& rule, int num_threads) {
  growth.end_hop();
  for (size_t hop = 0; hop < rule.num_hops; ++hop) {
    for (size_t relation = 0; relation < relations_.size(); ++relation) {
      const DrawRule draws{rule.fanouts[relation][hop], rule.replace, rule.last};
      if (draws.fanout == 0) continue;
      const uint64_t key = relations_.size() == 1 ? rule.key : subkey(rule.key, kOfRelation + relation);
      growth.hop(relation, draws, subkey(key, hop), num_threads);
    }
    growth.end_hop();
    if (!rule.induced) growth.note_edges();
  }
  if (rule.induced) {
    for (size_t relation = 0; relation < relations_.size(); ++relation) growth.induce(relation);
    growth.note_edges();
  }
  growth.end_subgraph();
}

std::shared_ptr<TypedSubgraph> TypedSampler::sample(const std::vector<TypedSeeds>& seeds, const SampleRule& rule,
                                                    int num_threads) {
  const std::vector<Seed> all = checked(seeds, num_nodes_);
  Assembly assembly(relations_, num_nodes_.size(), rule);
  std::vector<std::unique_ptr<Growth>> growths;
  if (!rule.disjoint) {
    growths.push_back(take(false));
    growths[0]->begin_subgraph(nullptr, nullptr);
    for (const Seed& seed : all) growths[0]->place_seed(seed.type, seed.node);
    grow(*growths[0], rule, num_threads);
  } else {
    const auto count = static_cast<int64_t>(all.size());
    growths.resize((count + kSeedsPerChunk - 1) / kSeedsPerChunk);
    for (auto& growth : growths) growth = take(true);
    ThreadPool::instance().parallel_for(count, kSeedsPerChunk, num_threads, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        Growth& growth = *growths[i / kSeedsPerChunk];
        const auto number = static_cast<uint64_t>(i);
        growth.begin_subgraph(&number, all[i].time);
        growth.place_seed(all[i].type, all[i].node);
        grow(growth, rule, 1);
      }
    });
  }
  for (const auto& growth : growths) assembly.add(*growth);
  auto out = assembly.put_together(num_threads);
  for (auto& growth : growths) give_back(std::move(growth));
  return out;
}

}  // namespace graphmill
