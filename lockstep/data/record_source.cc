#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/record_file.h"
#include "lockstep/data/sources.h"

namespace lockstep::data::internal {
namespace {

class RecordStream final : public Stream<Element> {
 public:
  explicit RecordStream(std::vector<std::string> files) : files_(std::move(files)) {}

  bool next(Element& out) override {
    std::string record;
    while (true) {
      if (!reader_) {
        if (next_ == files_.size()) return false;
        reader_.emplace(files_[next_++]);
      }
      if (reader_->next(record)) break;
      reader_.reset();
    }
    out = Element(std::vector<Component>{{"", Bytes{{std::move(record)}, {}}}});
    return true;
  }

 private:
  const std::vector<std::string> files_;
  std::size_t next_ = 0;
  std::optional<RecordReader> reader_;
};

class RecordNode final : public Node {
 public:
  explicit RecordNode(std::vector<std::string> files) : files_(std::move(files)) {}

  std::unique_ptr<Stream<Element>> open() const override { return std::make_unique<RecordStream>(files_); }
  std::int64_t cardinality() const override { return kUnknown; }
  StaticShape static_shape() const override { return {.is_fixed = true, .has_scalar = true}; }
  std::vector<NodePtr> inputs() const override { return {}; }
  // Names without folders: on another machine the same files may be elsewhere.
  std::string describe() const override {
    std::vector<std::string> names;
    for (const auto& file : files_) names.push_back(file.substr(file.rfind('/') + 1));
    return lockstep::str("TFRecord(", join(", ", names), ")");
  }

  NodePtr file_part(int count, int index) const override {
    if (files_.size() < static_cast<std::size_t>(count))
      throw Error(ErrorCode::kInvalidArgument,
                  lockstep::str("the dataset reads ", files_.size(), " files, which is not enough for ", count,
                                " workers; use the auto shard policy DATA or OFF, or more files"));
    std::vector<std::string> mine;
    for (auto i = static_cast<std::size_t>(index); i < files_.size(); i += static_cast<std::size_t>(count))
      mine.push_back(files_[i]);
    return std::make_shared<RecordNode>(std::move(mine));
  }

 private:
  const std::vector<std::string> files_;
};

}  // namespace

NodePtr make_records(std::vector<std::string> files) { return std::make_shared<RecordNode>(std::move(files)); }

NodePtr shard_files(const NodePtr& node, int count, int index) {
  if (auto part = node->file_part(count, index)) return part;
  const auto inputs = node->inputs();
  if (inputs.size() != 1) return nullptr;
  auto input = shard_files(inputs[0], count, index);
  return input == nullptr ? nullptr : node->with_input(std::move(input));
}

}  // namespace lockstep::data::internal
