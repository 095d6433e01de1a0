#include "lockstep/checkpoint/together.h"

#include <exception>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/str.h"

namespace lockstep::internal {
namespace {

// "-" and the answer, or the error's code as a number, a space, and its message.
std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return str(static_cast<int>(e.code()), " ", e.message());
  } catch (const std::exception& e) {
    return str(static_cast<int>(ErrorCode::kInternal), " ", e.what());
  } catch (...) {
    return str(static_cast<int>(ErrorCode::kInternal), " something that is no std::exception was thrown");
  }
}

}  // namespace

bool is_first(const WorkerGroup* workers) { return workers == nullptr || workers->layout().rank == 0; }

std::string together(WorkerGroup* workers, const char* what, const std::function<std::string()>& act) {
  if (workers == nullptr) return act();
  std::exception_ptr mine;
  std::string text;
  try {
    text = "-" + act();
  } catch (const SharedFailure&) {  // all have it
    throw;
  } catch (...) {
    if (workers->failure()) throw;  // the job has failed: nobody listens
    mine = std::current_exception();
    text = text_of(mine);
  }
  std::vector<std::string> all;
  try {
    all = workers->exchange(what, text);
  } catch (...) {  // the others may be in a call that `act` makes: a consequence of one's own error
    if (!mine) throw;
  }
  if (mine) std::rethrow_exception(mine);
  for (int worker = 0; worker < workers->layout().size(); ++worker) {
    const auto& one = all[static_cast<std::size_t>(worker)];
    if (one.starts_with("-")) continue;
    const auto space = one.find(' ');
    const auto code = whole_number<int>(one.substr(0, space)).value_or(static_cast<int>(ErrorCode::kInternal));
    throw Error(static_cast<ErrorCode>(code), str(what, ": ", workers->layout().name_of(worker), ": ", one.substr(space + 1)));
  }
  return all[0].substr(1);
}

}  // namespace lockstep::internal
