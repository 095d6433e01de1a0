#include "lockstep/data/prefetch.h"

#include <ATen/ThreadLocalState.h>

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/base/thread.h"

namespace lockstep::data::internal {
namespace {

class PrefetchStream final : public Stream<Element> {
 public:
  PrefetchStream(std::unique_ptr<Stream<Element>> input, std::size_t count)
      : ahead_("lockstep:pre", count, [input = std::shared_ptr(std::move(input))](Element& out) { return input->next(out); }) {}
  bool next(Element& out) override { return ahead_.take(out); }

 private:
  Prefetcher<Element> ahead_;
};

class PrefetchNode final : public UnaryNode {
 public:
  PrefetchNode(NodePtr input, std::int64_t count) : UnaryNode(std::move(input)), count_(count) {}

  std::unique_ptr<Stream<Element>> open() const override {
    if (count_ == 0) return input().open();
    return std::make_unique<PrefetchStream>(input().open(), static_cast<std::size_t>(count_));
  }
  NodePtr with_input(NodePtr input) const override { return std::make_shared<PrefetchNode>(std::move(input), count_); }
  std::int64_t cardinality() const override { return input().cardinality(); }
  StaticShape static_shape() const override { return input().static_shape(); }
  std::string describe() const override { return lockstep::str("Prefetch(", count_, ")"); }

 private:
  const std::int64_t count_;
};

}  // namespace

std::jthread start_data_thread(const std::string& name, std::function<void(std::stop_token)> body) {
  return start_thread(name, [body = std::move(body), settings = at::ThreadLocalState()](std::stop_token stop) {
    const at::ThreadLocalStateGuard guard(settings);
    body(std::move(stop));
  });
}

void report_slow_input(const std::string& name, std::chrono::steady_clock::time_point since) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - since).count();
  log_warning(lockstep::str(name, ": the input pipeline has given nothing for ", seconds, " s; still waiting"));
}

NodePtr make_prefetch(NodePtr input, std::int64_t count) {
  if (count < 0)
    throw Error(ErrorCode::kInvalidArgument,
                lockstep::str("prefetch(", count, "): the number of elements must not be negative"));
  return std::make_shared<PrefetchNode>(std::move(input), count);
}

}  // namespace lockstep::data::internal
