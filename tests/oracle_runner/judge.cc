#include "lockstep/base/error.h"
#include "tests/oracle_runner/case.h"
#include "tests/oracle_runner/compare.h"

namespace lockstep::oracle {
namespace {

Json describe(const Error& error) { return {{"code", name_of(error.code())}, {"message", error.what()}}; }

// The library's outcome, in the shape of a case's.
Json outcome_of(const Suite& suite, const Case& one) {
  try {
    return {{"expect", suite.answer(one)}};
  } catch (const UserFailure& failure) {
    return {{"error", {{"user", failure.what()}}}};
  } catch (const Error& error) {
    return {{"error", describe(error)}};
  }
}

// The message without LibTorch's stack trace.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

Verdict compare_with_ours(const Difference& ours, const Json& got) {
  std::string mismatch;
  for (const auto& outcome : ours.outcomes) {
    mismatch = find_mismatch(outcome, got);
    if (mismatch.empty()) return {Status::kDiffers, ours.reason};
  }
  return {Status::kFailed, mismatch + " (our rule: " + ours.reason + ")"};
}

Verdict judge_outcome(const Suite& suite, const Case& one) {
  const auto got = outcome_of(suite, one);
  const auto ours = suite.difference == nullptr ? std::nullopt : suite.difference(one);
  // A rule that gives TensorFlow's own answer is no difference.
  if (ours && ours->outcomes != std::vector<Json>{one.outcome}) return compare_with_ours(*ours, got);
  const auto mismatch = find_mismatch(one.outcome, got);
  return mismatch.empty() ? Verdict{Status::kPassed} : Verdict{Status::kFailed, mismatch};
}

}  // namespace

const Json& Case::asked() const {
  static const Json nothing;
  const auto found = outcome.find("expect");
  return found == outcome.end() ? nothing : *found;
}

Json field(const std::function<Json()>& fn) {
  try {
    return fn();
  } catch (const Error& error) {
    return {{"error", describe(error)}};
  }
}

Verdict judge(const Suite& suite, const Case& one) {
  try {
    return judge_outcome(suite, one);
  } catch (const NotApplicable& reason) {
    return {Status::kNotApplicable, reason.what()};
  } catch (const std::exception& error) {
    const auto text = "got an exception that is not ours: " + first_line(error.what());
    return {Status::kFailed, "expected " + shorten(one.outcome) + ", " + text};
  } catch (...) {
    return {Status::kFailed, "expected " + shorten(one.outcome) + ", got an exception of an unknown type"};
  }
}

}  // namespace lockstep::oracle
