#include "pool.h"

#include <unistd.h>

#include <algorithm>

namespace graphmill {

namespace {

thread_local OpenMp openmp{nullptr, nullptr};
thread_local pid_t sharer = 0;

bool shares_openmp(int num_threads) {
  return openmp.parallel != nullptr && num_threads == openmp.max_threads() && sharer == getpid();
}

}  // namespace

void share_openmp(const OpenMp& runtime) {
  openmp = runtime;
  sharer = getpid();
}

ThreadPool& ThreadPool::instance() {
  // Never destroyed: helpers sleep until the process ends. A forked child has no helpers, so it gets a pool of its own.
  static ThreadPool* pool = new ThreadPool;
  static std::atomic<pid_t> owner{getpid()};
  static std::mutex guard;
  if (owner.load() != getpid()) {
    std::lock_guard lock(guard);
    if (owner.load() != getpid()) {
      pool = new ThreadPool;
      // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks): the parent's pool, whose threads are not here
      owner = getpid();
    }
  }
  return *pool;
}

void ThreadPool::claim(Job& job) {
  for (;;) {
    const int64_t begin = job.next.fetch_add(job.chunk, std::memory_order_relaxed);
    if (begin >= job.count) return;
    (*job.body)(begin, std::min(begin + job.chunk, job.count));
  }
}

void ThreadPool::help() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] {
      return std::any_of(jobs_.begin(), jobs_.end(), [](const Job* job) { return job->helpers_wanted > 0; });
    });
    const auto found = std::find_if(jobs_.begin(), jobs_.end(), [](const Job* job) { return job->helpers_wanted > 0; });
    Job& job = **found;
    --job.helpers_wanted;
    ++job.helpers_active;
    lock.unlock();
    claim(job);
    lock.lock();
    if (--job.helpers_active == 0) done_.notify_all();
  }
}

void ThreadPool::ensure_helpers(int num_helpers) {
  while (static_cast<int>(helpers_.size()) < num_helpers) {
    helpers_.emplace_back([this] { help(); });
    helpers_.back().detach();
  }
}

void ThreadPool::parallel_for(int64_t count, int64_t chunk, int num_threads,
                              const std::function<void(int64_t, int64_t)>& body) {
  if (count <= 0) return;
  if (num_threads <= 1 || count <= chunk) {
    body(0, count);
    return;
  }
  const int64_t num_chunks = (count + chunk - 1) / chunk;
  Job job{&body, count, chunk, static_cast<int>(std::min<int64_t>(num_threads, num_chunks)) - 1, 0, {}};
  if (shares_openmp(num_threads)) {
    openmp.parallel([](void* data) { claim(*static_cast<Job*>(data)); }, &job, static_cast<unsigned>(num_threads), 0);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    ensure_helpers(job.helpers_wanted);
    jobs_.push_back(&job);
  }
  work_.notify_all();
  claim(job);
  std::unique_lock lock(mutex_);
  job.helpers_wanted = 0;
  done_.wait(lock, [&job] { return job.helpers_active == 0; });
  jobs_.erase(std::find(jobs_.begin(), jobs_.end(), &job));
}

}  // namespace graphmill
