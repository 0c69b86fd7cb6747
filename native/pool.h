// Threads that sleep between jobs and claim work in small chunks.
//
// No spinning and no barrier: a job is over when its last claimed chunk is, so a helper that the scheduler wakes late
// finds nothing to do and no thread waits for it. (A spinning OpenMP barrier loses 10-30x when another process shares a
// core.)
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace graphmill {

class ThreadPool {
 public:
  static ThreadPool& instance();

  // Call body(begin, end) for chunks of [0, count), on the caller and at most num_threads - 1 helpers.
  void parallel_for(int64_t count, int64_t chunk, int num_threads, const std::function<void(int64_t, int64_t)>& body);

 private:
  struct Job {
    const std::function<void(int64_t, int64_t)>* body;
    int64_t count, chunk;
    int helpers_wanted;
    int helpers_active = 0;
    std::atomic<int64_t> next{0};
  };

  ThreadPool() = default;
  void ensure_helpers(int num_helpers);
  void help();
  static void claim(Job& job);

  std::mutex mutex_;
  std::condition_variable work_, done_;
  std::vector<Job*> jobs_;
  std::vector<std::thread> helpers_;
};

}  // namespace graphmill
