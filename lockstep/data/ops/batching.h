#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/ops/reorder.h"
#include "lockstep/data/rows.h"

// What batch() and padded_batch() share: how items become batches of `options.size`, the last one smaller or dropped.

namespace lockstep::data::internal {

// Between two batches nothing is kept, so a position is the input's.
template <typename Item, typename Options>
class BatchingStream : public Stream<Element> {
 public:
  BatchingStream(const char* name, StreamPtr<Item> input, const Options& options)
      : input_(std::move(input)), options_(options), name_(name) {}

  void save(PositionWriter& to) override {
    to.begin(name_);
    input_->save(to);
  }
  void restore(PositionReader& from) override {
    from.expect(name_);
    input_->restore(from);
  }

 protected:
  // Whether so many items make a batch.
  bool is_batch(std::int64_t rows) const { return rows > 0 && (!options_.drop_remainder || rows == options_.size); }

  const StreamPtr<Item> input_;
  const Options options_;

 private:
  const char* const name_;
};

template <typename Options>
class BatchingNode : public UnaryNode {
 public:
  // `function` begins the error, `name` the description.
  BatchingNode(const char* function, const char* name, NodePtr input, Options options)
      : UnaryNode(std::move(input)), options_(std::move(options)), name_(name) {
    if (options_.size < 1)
      throw Error(ErrorCode::kInvalidArgument,
                  lockstep::str(function, "(", options_.size, "): the batch size must be at least 1"));
  }

  std::int64_t cardinality() const override {
    return count_batches(input().cardinality(), options_.size, options_.drop_remainder);
  }
  StaticShape static_shape() const override {
    return {.rows = options_.drop_remainder ? std::optional(options_.size) : std::nullopt,
            .asked_rows = options_.size,
            .is_fixed = options_.drop_remainder && input().static_shape().is_fixed};
  }
  std::string describe() const override {
    return lockstep::str(name_, "(", options_.size, options_.drop_remainder ? ", drop_remainder)" : ")");
  }

 protected:
  const Options options_;

 private:
  const char* const name_;
};

}  // namespace lockstep::data::internal
