// Memory that comes back when the last array over it is gone: fresh pages of a batch cost more than filling them.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace graphmill {

class ReusedMemory {
 public:
  struct Block {
    std::unique_ptr<void, decltype(&std::free)> memory{nullptr, &std::free};
    int64_t size = 0;
  };

  // At least `size` bytes, aligned to a line of the cache; what it held before is still there.
  static Block take(int64_t size) {
    {
      std::unique_lock lock(mutex(), std::try_to_lock);  // never waited for: a forked child may find it held for ever
      for (size_t i = 0; lock && i < waiting().size(); ++i) {
        if (waiting()[i].size < size || waiting()[i].size > 2 * size + kSmall) continue;
        Block block = std::move(waiting()[i]);
        waiting().erase(waiting().begin() + static_cast<std::ptrdiff_t>(i));
        return block;
      }
    }
    const int64_t rounded = (size + size / 8 + kSmall) / kSmall * kSmall;  // for a batch that is a little larger
    Block block;
    block.memory.reset(std::aligned_alloc(kSmall, static_cast<size_t>(rounded)));
    block.size = rounded;
    if (!block.memory) throw std::bad_alloc();
    return block;
  }

  static void give_back(Block block) {
    std::unique_lock lock(mutex(), std::try_to_lock);
    if (!lock) return;
    if (waiting().size() >= kMost) waiting().erase(waiting().begin());
    waiting().push_back(std::move(block));
  }

 private:
  static constexpr int64_t kSmall = 4096;
  static constexpr size_t kMost = 16;  // blocks that wait: those of a batch or two

  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static std::vector<Block>& waiting() {  // never destroyed: arrays may outlive it
    static auto* blocks = new std::vector<Block>;
    return *blocks;
  }
};

}  // namespace graphmill
