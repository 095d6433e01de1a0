#include "lockstep/data/file_source.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"

namespace lockstep::data::internal {
namespace {

template <typename Item>
class FileStream final : public Stream<Item> {
 public:
  FileStream(std::vector<std::string> files, const FileFormat& format) : files_(std::move(files)), format_(format) {}

  bool next(Item& out) override {
    for (;;) try {
        if (!reader_ && !open_next()) return false;
        if (reader_->next(out)) return true;
        reader_ = nullptr;
      } catch (const Error& error) {
        pass_over(error);
      }
  }

  void save(PositionWriter& to) override {
    to.begin("files");
    to.put(static_cast<std::int64_t>(next_));
    to.put(reader_ != nullptr);
    if (reader_) to.put(reader_->position());
  }
  void restore(PositionReader& from) override {
    from.expect("files");
    next_ = static_cast<std::size_t>(from.number());
    const bool is_open = from.flag();
    if (next_ > files_.size() || (is_open && next_ == 0))
      throw Error(ErrorCode::kInvalidArgument, "the saved position is of a dataset with more files");
    if (!is_open) return;
    reader_ = format_.open(files_[next_ - 1]);
    reader_->seek(from.unsigned_number());
  }

 private:
  // False: there is none.
  bool open_next() {
    if (next_ == files_.size()) {
      if (skipped_ > 0)
        log_warning(lockstep::str("passed over ", skipped_, " damaged places in ", files_.size(), " files, ", cut_short_,
                                  " of them with the rest of their file"));
      skipped_ = cut_short_ = 0;
      return false;
    }
    reader_ = format_.open(files_[next_++]);
    return true;
  }

  void pass_over(const Error& error) {
    if (!format_.options.ignore_errors || error.code() != ErrorCode::kDataLoss) throw;
    ++skipped_;
    if (format_.options.skipped) ++*format_.options.skipped;
    if (reader_ && reader_->skip_damage()) return;
    ++cut_short_;
    reader_ = nullptr;
  }

  const std::vector<std::string> files_;
  const FileFormat format_;
  std::size_t next_ = 0;                // file
  std::unique_ptr<FileReader> reader_;  // of the one before it; null: none
  std::int64_t skipped_ = 0;
  std::int64_t cut_short_ = 0;
};

class FileNode final : public Node {
 public:
  FileNode(std::vector<std::string> files, FileFormat format) : files_(std::move(files)), format_(std::move(format)) {}

  std::unique_ptr<Stream<Element>> open() const override { return std::make_unique<FileStream<Element>>(files_, format_); }
  bool has_texts() const override { return format_.has_texts; }
  std::unique_ptr<Stream<std::string>> open_texts() const override {
    return format_.has_texts ? std::make_unique<FileStream<std::string>>(files_, format_) : nullptr;
  }
  NodePtr with_inputs(std::vector<NodePtr>) const override { return std::make_shared<FileNode>(*this); }
  std::int64_t cardinality() const override { return files_.empty() ? 0 : kUnknown; }
  StaticShape static_shape() const override { return {.is_fixed = true, .has_scalar = true}; }
  std::vector<NodePtr> inputs() const override { return {}; }
  // Names without folders: on another machine the same files may be elsewhere.
  std::string describe() const override {
    std::vector<std::string> names;
    for (const auto& file : files_) names.push_back(file.substr(file.rfind('/') + 1));
    return lockstep::str(format_.name, "(", join(", ", names), ")");
  }

  const std::vector<std::string>* files() const override { return &files_; }
  NodePtr with_files(std::vector<std::string> files) const override {
    return std::make_shared<FileNode>(std::move(files), format_);
  }

 private:
  const std::vector<std::string> files_;
  const FileFormat format_;
};

}  // namespace

NodePtr make_files(std::vector<std::string> files, FileFormat format) {
  return std::make_shared<FileNode>(std::move(files), std::move(format));
}

}  // namespace lockstep::data::internal
