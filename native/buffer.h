// Memory that is reused from batch to batch: fresh pages cost more than the sampling itself.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace graphmill {

template <class T>
class Buffer {
 public:
  T* data() { return memory_.get(); }
  const T* data() const { return memory_.get(); }
  T& operator[](int64_t i) { return memory_[i]; }

  // Room for `count` values, keeping the first `kept`.
  void reserve(int64_t count, int64_t kept = 0) {
    if (count <= capacity_) return;
    const int64_t capacity = count + count / 4;
    std::unique_ptr<T[]> grown(new T[capacity]);
    for (int64_t i = 0; i < kept; ++i) grown[i] = memory_[i];
    memory_ = std::move(grown);
    capacity_ = capacity;
  }

 private:
  std::unique_ptr<T[]> memory_;
  int64_t capacity_ = 0;
};

template <class T>
struct Aligned {  // to a line of the cache, uninitialised
  explicit Aligned(int64_t count)
      : data(static_cast<T*>(std::aligned_alloc(64, (std::max<int64_t>(count, 1) * sizeof(T) + 63) / 64 * 64)),
             &std::free) {}
  std::unique_ptr<T, decltype(&std::free)> data;
};

}  // namespace graphmill
