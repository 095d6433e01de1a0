#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/collective/engine_plugin.h"

namespace lockstep::testing {

// What a coordinator keeps for engines, inside one process.
class KeyValueStore {
 public:
  EngineSetup setup(int rank, int size) {
    EngineSetup result;
    result.rank = rank;
    result.size = size;
    result.put = [this](const std::string& key, const std::string& value) {
      const std::lock_guard lock(mu_);
      values_[key] = value;
      changed_.notify_all();
    };
    result.get = [this](const std::string& key) {
      std::unique_lock lock(mu_);
      if (!changed_.wait_for(lock, std::chrono::seconds(20), [&] { return values_.count(key) > 0; }))
        throw Error(ErrorCode::kDeadlineExceeded, key);
      return values_[key];
    };
    return result;
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace lockstep::testing
