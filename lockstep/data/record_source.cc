#include <string_view>
#include <utility>

#include "lockstep/data/file_source.h"
#include "lockstep/data/io/fixed_records.h"
#include "lockstep/data/io/text_lines.h"
#include "lockstep/data/io/tf_record.h"
#include "lockstep/data/sources.h"

namespace lockstep::data::internal {
namespace {

// Every record as a byte string.
template <typename Reader>
class RecordsOf final : public FileReader {
 public:
  template <typename... Arguments>
  explicit RecordsOf(const Arguments&... arguments) : reader_(arguments...) {}

  bool next(Element& out) override {
    std::string text;
    if (!next(text)) return false;
    std::vector<Component> components(1);
    components[0].value.emplace<Bytes>().values.push_back(std::move(text));
    out = Element(std::move(components));
    return true;
  }
  bool next(std::string& out) override {
    std::string_view record;
    if (!reader_.next(record)) return false;
    out = std::string(record);
    return true;
  }
  bool skip_damage() override {
    if constexpr (requires { reader_.skip_damage(); }) return reader_.skip_damage();
    else return false;
  }
  std::uint64_t position() const override { return reader_.position(); }
  void seek(std::uint64_t position) override { reader_.seek(position); }

 private:
  Reader reader_;
};

template <typename Reader, typename... Arguments>
NodePtr make_records(std::string name, std::vector<std::string> files, const ReadOptions& options, Arguments... arguments) {
  auto open = [=](const std::string& path) -> std::unique_ptr<FileReader> {
    return std::make_unique<RecordsOf<Reader>>(path, arguments..., options.compression);
  };
  return make_files(std::move(files), {std::move(name), std::move(open), options, /*has_texts=*/true});
}

}  // namespace

NodePtr make_tf_records(std::vector<std::string> files, const ReadOptions& options) {
  return make_records<RecordReader>("TFRecord", std::move(files), options);
}

NodePtr make_text_lines(std::vector<std::string> files, const ReadOptions& options) {
  return make_records<LineReader>("TextLines", std::move(files), options);
}

NodePtr make_fixed_records(std::vector<std::string> files, const FixedLengths& lengths, const ReadOptions& options) {
  validate(lengths);
  return make_records<FixedReader>("FixedLengthRecords", std::move(files), options, lengths);
}

}  // namespace lockstep::data::internal
