#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/collective/transport.h"

// What every engine must do, as one rank sees it. All ranks call the same functions; a wrong result is an Error.

namespace lockstep::testing {

inline constexpr std::size_t kLarge = std::size_t{8} << 20;

inline void must(bool condition, const std::string& what) {
  if (!condition) throw Error(ErrorCode::kInternal, str("wrong result: ", what));
}

// Bytes that tell who sent them to whom.
inline std::vector<std::byte> letter(int from, int to, std::size_t bytes) {
  std::vector<std::byte> text(bytes);
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<std::byte>(from * 31 + to * 7 + i * 13 + i / 251);
  return text;
}

// Sizes of nothing, of one, odd and large ones, different for every pair of ranks.
inline std::size_t odd_size(int from, int to, int round) {
  const std::size_t sizes[] = {0, 1, 3, 1001, 65537, kLarge, kLarge + 1};
  return sizes[(from * 5 + to * 3 + round) % 7];
}

inline void check_all_to_all(Transport& engine, int round) {
  const int me = engine.rank();
  std::vector<std::vector<std::byte>> out, in;
  for (int peer = 0; peer < engine.size(); ++peer) {
    out.push_back(letter(me, peer, odd_size(me, peer, round)));
    in.push_back(std::vector<std::byte>(odd_size(peer, me, round), std::byte{0xAA}));
  }
  const auto untouched = in[me];
  engine.all_to_all(std::vector<ConstBytes>(out.begin(), out.end()), std::vector<Bytes>(in.begin(), in.end()));
  for (int peer = 0; peer < engine.size(); ++peer)
    must(in[peer] == (peer == me ? untouched : letter(peer, me, odd_size(peer, me, round))),
         str("all_to_all, round ", round, ", rank ", peer, " to ", me));
}

inline void check_all_gather(Transport& engine, int round) {
  const int me = engine.rank();
  std::vector<std::vector<std::byte>> parts;
  for (int peer = 0; peer < engine.size(); ++peer) {
    const auto bytes = odd_size(peer, 0, round);
    parts.push_back(peer == me ? letter(me, 0, bytes) : std::vector<std::byte>(bytes));
  }
  engine.all_gather(std::vector<Bytes>(parts.begin(), parts.end()));
  for (int peer = 0; peer < engine.size(); ++peer)
    must(parts[peer] == letter(peer, 0, odd_size(peer, 0, round)), str("all_gather, round ", round, ", part ", peer));
}

inline void check_broadcast(Transport& engine, int root, std::size_t bytes) {
  auto data = engine.rank() == root ? letter(root, 0, bytes) : std::vector<std::byte>(bytes);
  engine.broadcast(data, root);
  must(data == letter(root, 0, bytes), str("broadcast of ", bytes, " bytes from ", root));
}

template <typename T>
void check_all_reduce(Transport& engine, SumType type, std::size_t count) {
  const auto size = static_cast<std::size_t>(engine.size());
  std::vector<T> data(count), sums(count);
  for (std::size_t i = 0; i < count; ++i) {
    data[i] = static_cast<T>(engine.rank() + i % 1000);
    sums[i] = static_cast<T>(size * (size - 1) / 2 + size * (i % 1000));
  }
  engine.all_reduce(type, std::as_writable_bytes(std::span(data)));
  must(data == sums, str("all_reduce of ", count, " elements of type ", static_cast<int>(type)));
}

inline void check_wrap_around(Transport& engine) {
  const auto most = std::numeric_limits<std::int32_t>::max();
  std::vector<std::int32_t> data(5, engine.rank() == 0 ? most : 1);
  engine.all_reduce(SumType::kInt32, std::as_writable_bytes(std::span(data)));
  const auto expected = static_cast<std::int32_t>(static_cast<std::uint32_t>(most) + engine.size() - 1);
  must(data == std::vector<std::int32_t>(5, expected), "all_reduce beyond the largest integer");
}

inline void check_calls(Transport& engine) {
  for (int round = 0; round < 7; ++round) {
    check_all_to_all(engine, round);
    check_all_gather(engine, round);
    engine.barrier();
  }
  for (int root = 0; root < engine.size(); ++root)
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, kLarge + 3}) check_broadcast(engine, root, bytes);
  for (const std::size_t count : {0, 1, 17, 2'000'003}) {
    check_all_reduce<float>(engine, SumType::kFloat, count);
    check_all_reduce<double>(engine, SumType::kDouble, count);
    check_all_reduce<std::int64_t>(engine, SumType::kInt64, count);
    check_all_reduce<std::int32_t>(engine, SumType::kInt32, count);
  }
  if (engine.size() > 1) check_wrap_around(engine);
}

}  // namespace lockstep::testing
