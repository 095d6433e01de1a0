#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bench/ps_tasks.h"

namespace bench {

// Sizes of the transfers that are measured.
inline constexpr std::size_t kDenseBytes = std::size_t{64} << 20;
inline constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
inline constexpr std::size_t kRowsAtOnce = 10'000;
inline constexpr std::size_t kColumns = 32;
inline constexpr std::uint32_t kIdBatches = 16;

// 10,000 random rows; the same ones in every process.
std::vector<std::int64_t> random_ids(std::uint32_t batch, std::int64_t rows);

// What is to be beaten: bytes over one TCP connection to another process, whose only thread copies rows out of a table or adds
// them. It knows the ids of all batches already: only rows travel.
class RawPeer {
 public:
  explicit RawPeer(std::int64_t rows);
  ~RawPeer();
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  // 64 MB in pieces, each into or out of the same memory.
  void pull_dense();
  void push_dense();
  // Rows of a batch; `rows` has 10,000 x 32 floats.
  void pull_rows(std::uint32_t batch, std::span<float> rows);
  void push_rows(std::uint32_t batch, std::span<const float> rows);

 private:
  std::vector<std::byte> piece_;
  std::unique_ptr<Child> child_;
  int socket_ = -1;
};

// The other process: serves the one that listens at this port until it has gone.
void serve_raw(int port, std::int64_t rows);

}  // namespace bench
