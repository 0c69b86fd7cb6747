// Captures of CAN buses: numbers in their lines, and windows of their frames as graphs.
#include "bindings.h"
#include "digits.h"
#include "windows.h"

namespace graphmill {

namespace {

using Bytes = Array<const uint8_t, 1>;

TextFields fields_of(const Bytes& data, const Ids& begins, const Ids& ends) {
  require(length(begins) == length(ends), "begins and ends differ in length");
  for (int64_t i = 0; i < length(begins); ++i)
    require(begins.data()[i] >= 0 && ends.data()[i] <= length(data), "a field leads beyond the bytes");
  return {data.data(), begins.data(), ends.data(), length(begins)};
}

void decimals_py(const Bytes& data, const Ids& begins, const Ids& ends, Array<double, 1> values,
                 Array<uint8_t, 1> kinds) {
  const TextFields fields = fields_of(data, begins, ends);
  require(length(values) == fields.count && length(kinds) == fields.count, "results have a value for each field");
  nb::gil_scoped_release release;
  decimals(fields, values.data(), reinterpret_cast<Decimal*>(kinds.data()));
}

void hex_numbers_py(const Bytes& data, const Ids& begins, const Ids& ends, Array<uint32_t, 1> values,
                    Array<bool, 1> is_good) {
  const TextFields fields = fields_of(data, begins, ends);
  require(length(values) == fields.count && length(is_good) == fields.count, "results have a value for each field");
  nb::gil_scoped_release release;
  hex_numbers(fields, values.data(), is_good.data());
}

void hex_bytes_py(const Bytes& data, const Ids& begins, const Ids& ends, Array<uint8_t, 2> bytes,
                  Array<bool, 1> is_good) {
  const TextFields fields = fields_of(data, begins, ends);
  require(has_shape(bytes, fields.count, 8) && length(is_good) == fields.count, "results have a row for each field");
  nb::gil_scoped_release release;
  hex_bytes(fields, bytes.data(), is_good.data());
}

// What a vector holds as a numpy array of rows, or of single values where `columns` is 0.
template <class T>
nb::object handed_over(std::vector<T>&& values, size_t columns = 0) {
  values.shrink_to_fit();  // graphs may be held for long, and in numbers
  auto* kept = new std::vector<T>(std::move(values));
  const nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  static T nothing{};
  T* data = kept->empty() ? &nothing : kept->data();
  if (!columns) return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(data, {kept->size()}, owner));
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<2>>(data, {kept->size() / columns, columns}, owner));
}

nb::tuple window_graphs_py(const Array<const uint32_t, 1>& ids, const Array<const uint8_t, 2>& payload,
                           const Ids& begins, int64_t size) {
  require(has_shape(payload, length(ids), kPayloadBytes), "payload must be [num_frames, 8]");
  require(size >= 2, "a window has two frames at least");
  for (int64_t i = 0; i < length(begins); ++i)
    require(begins.data()[i] >= 0 && begins.data()[i] + size <= length(ids), "a window leads beyond the frames");
  WindowGraphs graphs;
  {
    nb::gil_scoped_release release;
    graphs = window_graphs({length(ids), ids.data(), payload.data()}, begins.data(), length(begins), size);
  }
  return nb::make_tuple(handed_over(std::move(graphs.num_nodes)), handed_over(std::move(graphs.num_edges)),
                        handed_over(std::move(graphs.node_ids)), handed_over(std::move(graphs.x), kNodeFeatures),
                        handed_over(std::move(graphs.sources)), handed_over(std::move(graphs.targets)),
                        handed_over(std::move(graphs.edge_attr), kEdgeFeatures));
}

}  // namespace

void bind_captures(nb::module_& m) {
  m.def("decimals", &decimals_py, nb::arg("data"), nb::arg("begins"), nb::arg("ends"), nb::arg("values").noconvert(),
        nb::arg("kinds").noconvert());
  m.def("hex_numbers", &hex_numbers_py, nb::arg("data"), nb::arg("begins"), nb::arg("ends"),
        nb::arg("values").noconvert(), nb::arg("is_good").noconvert());
  m.def("hex_bytes", &hex_bytes_py, nb::arg("data"), nb::arg("begins"), nb::arg("ends"), nb::arg("bytes").noconvert(),
        nb::arg("is_good").noconvert());
  m.def("window_graphs", &window_graphs_py, nb::arg("ids"), nb::arg("payload"), nb::arg("begins"), nb::arg("size"));
}

}  // namespace graphmill
