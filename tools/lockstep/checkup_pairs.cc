#include <algorithm>
#include <cmath>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "tools/lockstep/checkup.h"

// What tasks find between each other: steps 3 and 4 of Note [a checkup].

namespace lockstep::tool {
namespace {

using std::chrono::nanoseconds;

constexpr std::chrono::seconds kOneConnection(5);  // to one task, and one measurement

std::string readable(nanoseconds time) {
  return std::chrono::abs(time) < std::chrono::milliseconds(10) ? str(time.count() / 1000, " us")
                                                                : str(time.count() / 1'000'000, " ms");
}

std::string megabytes_a_second(double rate) {
  const double megabytes = rate / 1e6;
  return str(megabytes < 10 ? std::round(megabytes * 10) / 10 : std::round(megabytes), " MB/s");
}

// With whom `index` of `count` is in a round: a tournament in which everybody meets everybody. Nothing: it rests.
std::optional<std::size_t> partner_in(std::size_t round, std::size_t index, std::size_t count) {
  const auto seats = count + count % 2;
  const auto last = seats - 1;
  const auto partner = index == last ? round : (2 * round + last - index) % last;
  const auto other = index != last && partner == index ? last : partner;
  return other < count ? std::optional(other) : std::nullopt;
}

Finding judge_latency(const std::string& who, nanoseconds round_trip) {
  constexpr std::chrono::milliseconds kSlow(20);
  Finding finding{
      .check = "latency", .who = who, .found = readable(round_trip), .badness = static_cast<double>(round_trip.count())};
  if (round_trip <= kSlow) return finding;
  finding.verdict = Verdict::kWarning;
  finding.fix = "use machines of one site: each step of training waits for several round trips";
  return finding;
}

Finding judge_rates(const std::string& who, double there, double back) {
  constexpr double kSlow = 10e6;
  Finding finding{.check = "bandwidth",
                  .who = who,
                  .found = str(megabytes_a_second(there), " there, ", megabytes_a_second(back), " back"),
                  .badness = 1 / std::min(there, back)};
  if (std::min(there, back) >= kSlow) return finding;
  finding.verdict = Verdict::kWarning;
  finding.fix = "check cable, duplex and which network the names lead to; a model of 100 MB takes seconds a step over this";
  return finding;
}

Finding judge_clock(const std::string& who, const Probe::Times& times) {
  constexpr std::chrono::seconds kApart(1);
  Finding finding{.check = "clocks",
                  .who = who,
                  .found = str("differ by ", readable(times.clock_offset), " (+/- ", readable(times.round_trip / 2), ")"),
                  .badness = std::abs(static_cast<double>(times.clock_offset.count()))};
  if (std::chrono::abs(times.clock_offset) <= kApart) return finding;
  finding.verdict = Verdict::kFailed;
  finding.fix = "let both follow a time server (systemd-timesyncd, chrony): certificates and logs depend on it";
  return finding;
}

}  // namespace

void Checkup::connect_to_all() {
  for (std::size_t other = 0; other < tasks_.size(); ++other) {
    if (other == index_) continue;
    Finding finding{.check = "connections", .who = str(me(), " -> ", tasks_[other])};
    try {
      const auto begin = std::chrono::steady_clock::now();
      Probe(facts_[other].probe, facts_[other].token, Deadline::after(std::min<nanoseconds>(kOneConnection, options_.timeout)))
          .ping(1);
      const auto took = std::chrono::duration_cast<nanoseconds>(std::chrono::steady_clock::now() - begin);
      finding.found = str("connects in ", readable(took));
      finding.badness = static_cast<double>(took.count());
    } catch (const Error& error) {
      finding.verdict = Verdict::kFailed;
      finding.found = error.message();
      finding.fix =
          str("open port ", facts_[other].probe.port, " of host '", facts_[other].host, "' for host '", facts_[index_].host,
              "' (firewall), and check that '", facts_[other].probe.host, "' is that machine; other ports are used too");
    }
    add(std::move(finding));
  }
}

void Checkup::measure_pairs() {
  const auto count = tasks_.size();
  const auto rounds = count + count % 2 - 1;
  for (std::size_t round = 0; round < rounds; ++round) {
    client_->barrier(str("doctor/round/", round), options_.timeout + kOneConnection * 2);
    const auto partner = partner_in(round, index_, count);
    if (partner && index_ < *partner && unreachable_.count(*partner) == 0) measure(*partner);
  }
  client_->barrier("doctor/measured", options_.timeout + kOneConnection * 2);
}

void Checkup::measure(std::size_t other) {
  const auto who = str(me(), " - ", tasks_[other]);
  try {
    const Probe probe(facts_[other].probe, facts_[other].token,
                      Deadline::after(std::min<nanoseconds>(kOneConnection, options_.timeout)));
    constexpr int kPings = 200;
    const auto times = probe.ping(kPings);
    add(judge_latency(who, times.round_trip));
    if (is_leader()) add(judge_clock(who, times));
    add(judge_rates(who, probe.rate_there(), probe.rate_back()));
  } catch (const Error& error) {
    add({.check = "bandwidth",
         .who = who,
         .verdict = Verdict::kFailed,
         .found = error.message(),
         .fix = "the connection is open but data does not get through: check the MTU and the link for losses"});
  }
}

void Checkup::open_memory() {
  for (std::size_t other = 0; other < tasks_.size(); ++other) {
    if (other == index_ || facts_[other].machine.boot != facts_[index_].machine.boot) continue;
    Finding finding{.check = "memory of peers", .who = str(me(), " -> ", tasks_[other]), .found = "can be opened"};
    try {
      const auto block = SharedBlock::open(facts_[other].memory);
      if (block.bytes() != sizeof facts_[other].token || std::memcmp(block.data(), &facts_[other].token, block.bytes()) != 0)
        throw Error(ErrorCode::kUnavailable, "it is another process's: the process ids mean something else here");
    } catch (const Error& error) {
      const bool should_work = facts_[other].machine.key == facts_[index_].machine.key;
      finding.verdict = should_work ? Verdict::kFailed : Verdict::kWarning;
      finding.found = error.message();
      finding.fix =
          "run the tasks of one machine as one user and in one container; else they use the network in place of memory";
    }
    add(std::move(finding));
  }
}

}  // namespace lockstep::tool
