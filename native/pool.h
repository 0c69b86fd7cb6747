// Threads that sleep between jobs and claim work in small chunks.
//
// No spinning and no barrier: a job is over when its last claimed chunk is, so a helper that the scheduler wakes late
// finds nothing to do and no thread waits for it. (A spinning OpenMP barrier loses 10-30x when another process shares a
// core.)
//
// Where the threads of torch's OpenMP spin, as they do in a script in which nobody says otherwise, helpers of our own
// would wait for a core until these sleep. There the thread that imported us has its work done by them
// (`share_openmp`).
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace graphmill {

// What an OpenMP runtime of GNU's interface is called by.
struct OpenMp {
  void (*parallel)(void (*)(void*), void*, unsigned num_threads, unsigned flags);
  int (*max_threads)();
};

// From now on the calling thread's jobs for as many threads as `runtime` has run on these. Not in a forked child: the
// runtime has no threads there, and would wait for them.
void share_openmp(const OpenMp& runtime);

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
