#pragma once

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "lockstep/base/str.h"
#include "lockstep/collective/engine_plugin.h"

namespace lockstep::testing {

// An engine's setup with a store that is a folder, which all processes of a test see.
inline EngineSetup setup_in_folder(int rank, int size, const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  using Clock = std::chrono::steady_clock;
  const auto file = [folder](std::string key) {
    std::ranges::replace(key, '/', '_');
    return folder / key;
  };
  return {.rank = rank,
          .size = size,
          .timeout = std::chrono::seconds(20),
          .put =
              [file](const std::string& key, const std::string& value) {
                const auto unfinished = file(key).string() + ".unfinished";
                std::ofstream(unfinished, std::ios::binary) << value;
                fs::rename(unfinished, file(key));
              },
          .get =
              [file](const std::string& key) {
                const auto end = Clock::now() + std::chrono::seconds(10);
                for (; !fs::exists(file(key)); std::this_thread::sleep_for(std::chrono::milliseconds(5)))
                  if (Clock::now() > end) throw Error(ErrorCode::kDeadlineExceeded, str("nobody wrote ", key));
                std::ifstream in(file(key), std::ios::binary);
                std::ostringstream value;
                value << in.rdbuf();
                return value.str();
              }};
}

}  // namespace lockstep::testing
