#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// What a parameter server says of its start.
struct ServerRecovery {
  static constexpr const char* kMethod = "server.recovery";

  std::string server = "";         // "/job:ps/task:0"
  std::uint64_t incarnation = 0;   // another one after each start
  bool keeps_snapshots = false;    // see ServerOptions::snapshot_folder
  std::string snapshot = "";       // the one it was started from; "": it began with nothing
  std::uint64_t lost_updates = 0;  // operations that were acknowledged before, and are not in it
  bool is_exact = true;            // false: so many at least; the machine was lost, too, or the count of them
  template <typename Fields>
  void list(Fields& fields) {
    fields(server, incarnation, keeps_snapshots, snapshot, lost_updates, is_exact);
  }
};

// "goes on from the snapshot 'x'; 3 acknowledged updates after it are lost", for logs.
std::string describe(const ServerRecovery& recovery);

}  // namespace lockstep
