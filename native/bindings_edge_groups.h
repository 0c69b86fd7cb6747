// Edges by target and by source as Python hands them over: the arrays are held as long as the pointers into them.
#pragma once
#include <optional>

#include "attention.h"
#include "bindings.h"

namespace graphmill {

struct Groups {  // as group_edges made them: only sizes are checked, the kernels trust the rest
  EdgeGroups edges;
  Ids indptr;
  Locals sources, edge_ids;
  std::optional<Ids> out_indptr;
  std::optional<Locals> targets, slots;
};

}  // namespace graphmill
