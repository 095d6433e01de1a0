#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep::ps::internal {

// The threads of a server that run what may wait. They are started when they are needed, and stay.
class RpcThreads {
 public:
  // `most_waiting_bytes`: of the requests that wait for a thread.
  RpcThreads(int most_threads, std::size_t most_waiting_bytes);
  ~RpcThreads();  // close()
  RpcThreads(const RpcThreads&) = delete;
  RpcThreads& operator=(const RpcThreads&) = delete;

  enum class Turn { kHasCome, kNeverComes };
  using Work = std::function<void(Turn)>;  // does not throw

  // False: too much waits already, or close() was called; `work` is not called.
  bool add(Work work, std::size_t bytes);

  // What waits is told that its turn never comes, what runs is waited for.
  void close();

 private:
  struct Waiting {
    Work work;
    std::size_t bytes;
  };

  bool start_one();
  void serve(const std::stop_token& stop);

  // Const after construction.
  const std::size_t most_threads_;
  const std::size_t most_waiting_bytes_;

  // Guarded by mu_.
  std::mutex mu_;
  std::condition_variable_any changed_;
  std::deque<Waiting> waiting_;
  std::size_t waiting_bytes_ = 0;
  std::size_t idle_ = 0;
  bool is_closed_ = false;

  std::vector<std::jthread> threads_;  // guarded by mu_ too; last: joined first
};

}  // namespace lockstep::ps::internal
