// Inner loops, compiled once per instruction set and chosen at start (isa.cpp): a table for each family, whose unit and
// header are in kernels/. Each works on one thread's share.
#pragma once
#include "kernels/assignment.h"
#include "kernels/assignment_features.h"
#include "kernels/attention.h"
#include "kernels/draws.h"
#include "kernels/norms.h"
#include "kernels/products.h"
#include "kernels/ranking.h"
#include "kernels/recurrent.h"
#include "kernels/rows.h"
#include "kernels/sparse.h"

namespace graphmill {

struct Kernels {  // of one instruction set
  const char* name;
  const DrawKernels& draws;
  const RowKernels& rows;
  const ProductKernels& products;
  const NormKernels& norms;
  const SparseKernels& sparse;
  const RecurrentKernels& recurrent;
  const AttentionKernels<float>& attention_float;
  const AttentionKernels<double>& attention_double;
  const AssignmentKernels<float, double>& assignment_float;
  const AssignmentKernels<double, double>& assignment_double;
  const AssignmentKernels<int64_t, int64_t>& assignment_int64;
  const AssignmentFeatureKernels& assignment_features;
  const RankingKernels& ranking;
};

// The best that this processor runs; GRAPHMILL_ISA=generic|avx2|avx512 asks for one.
const Kernels& kernels();

}  // namespace graphmill
