#include <ATen/ATen.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <mutex>

#include "lockstep/base/errno_text.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/io/tf_record.h"
#include "lockstep/data/ops/ops.h"

namespace lockstep::data::internal {
namespace {

// Note [cache]
// 1. The first pass that reaches its end fills the cache: in memory, or in a file that gets its name when it is whole, so that
//    a crash, a full disk or a pass that is given up leave none. Several passes at once each read the input; the first to
//    end wins. The file begins with a description of the input, so that it is not taken for another pipeline's.
// 2. A position does not hold the elements: it says where the input's pass began, and a new process reads that again, up to the
//    position or, when the cache was filled, to its end. A pass that fills a file goes on without filling it. Later passes of
//    the new process read the same again, as they would have read the cache.
struct CacheMemory {
  std::mutex mu;
  // Guarded by mu.
  std::shared_ptr<const std::vector<Element>> elements;  // null: not filled
  // The input's position at the beginning of the pass that filled it, or, in another process, is to fill it.
  std::string beginning;
};

// A pass over `node`, and what its later parts depend on.
std::string position_of(Stream<Element>& pass, const Node& node) {
  PositionWriter writer;
  put_passes(writer, node);
  pass.save(writer);
  return std::move(writer).take();
}

std::unique_ptr<Stream<Element>> open_at(const Node& node, std::string_view position) {
  auto pass = node.open();
  PositionReader reader(position);
  take_passes(reader, node);
  pass->restore(reader);
  return pass;
}

class MemoryCacheStream final : public Stream<Element> {
 public:
  MemoryCacheStream(NodePtr input, std::shared_ptr<CacheMemory> memory) : input_(std::move(input)), memory_(std::move(memory)) {
    const std::lock_guard lock(memory_->mu);
    filled_ = memory_->elements;
  }

  bool next(Element& out) override {
    if (filled_) {
      if (position_ == filled_->size()) return false;
      out = copy_of((*filled_)[position_++]);
      return true;
    }
    if (!pass_) begin();
    if (!pass_->next(out)) {
      keep();
      return false;
    }
    seen_.push_back(copy_of(out));
    return true;
  }

  void save(PositionWriter& to) override {
    to.begin("cache");
    to.put(filled_ != nullptr);
    to.put(static_cast<std::int64_t>(filled_ ? position_ : seen_.size()));
    const std::lock_guard lock(memory_->mu);
    to.put(std::string_view(filled_ ? memory_->beginning : beginning_));
  }
  void restore(PositionReader& from) override {
    from.expect("cache");
    const bool was_filled = from.flag();
    const auto position = static_cast<std::size_t>(from.number());
    const auto beginning = from.bytes();
    if (was_filled && !filled_) read_again(beginning, std::numeric_limits<std::size_t>::max());
    if (was_filled) position_ = std::min(position, filled_->size());
    else if (!beginning.empty()) read_again(beginning, position);
  }

 private:
  void begin() {
    {
      const std::lock_guard lock(memory_->mu);
      beginning_ = memory_->beginning;
    }
    if (!beginning_.empty()) {
      pass_ = open_at(*input_, beginning_);
      return;
    }
    pass_ = input_->open();
    beginning_ = position_of(*pass_, *input_);
  }

  // The pass is over; from now on it is one that has read everything from memory.
  void keep() {
    const std::lock_guard lock(memory_->mu);
    if (!memory_->elements) {
      memory_->elements = std::make_shared<const std::vector<Element>>(std::move(seen_));
      memory_->beginning = beginning_;
    }
    filled_ = memory_->elements;
    position_ = filled_->size();
    seen_.clear();
    pass_ = nullptr;
  }

  // The first `count` elements of the pass that began there, or all.
  void read_again(std::string_view beginning, std::size_t count) {
    filled_ = nullptr;
    pass_ = open_at(*input_, beginning);
    beginning_ = beginning;
    for (Element element; seen_.size() < count;) {
      if (!pass_->next(element)) return keep();
      seen_.push_back(std::move(element));
    }
  }

  const NodePtr input_;
  const std::shared_ptr<CacheMemory> memory_;
  std::shared_ptr<const std::vector<Element>> filled_;  // null: this pass reads the input
  std::size_t position_ = 0;                            // in filled_
  std::unique_ptr<Stream<Element>> pass_;               // null: not begun, or filled
  std::string beginning_;                               // of pass_
  std::vector<Element> seen_;
};

// What a cache file is of: the pipeline, and where its files are.
std::string signature_of(const Node& input) {
  auto text = describe_pipeline(input);
  for_each_node(input, [&](const Node& node) {
    if (node.files() == nullptr) return;
    for (const auto& file : *node.files()) text += file + "\n";
  });
  return text;
}

// The file: the signature, the elements, and a last record that says how many they are.
class FileCacheStream final : public Stream<Element> {
 public:
  FileCacheStream(const NodePtr& input, std::string file) : file_(std::move(file)), signature_(signature_of(*input)) {
    if (access(file_.c_str(), F_OK) == 0) open_file();
    else input_ = input->open();
  }
  ~FileCacheStream() override {
    if (writer_) std::remove(part().c_str());
  }

  bool next(Element& out) override {
    if (reader_) return read(out);
    if (!has_begun_) begin_file();
    if (!input_->next(out)) {
      finish_file();
      return false;
    }
    if (writer_) write(&out);
    ++given_;
    return true;
  }

  void save(PositionWriter& to) override {
    to.begin("file_cache");
    to.put(given_);
    PositionWriter pass;
    if (input_) input_->save(pass);
    to.put(input_ != nullptr);
    to.put(std::string_view(std::move(pass).take()));
  }
  // Elements that were read from the input then can be read from the file now.
  void restore(PositionReader& from) override {
    from.expect("file_cache");
    const auto given = from.number();
    const bool was_input = from.flag();
    const auto pass = from.bytes();
    has_begun_ = true;
    if (reader_) return skip(given);
    if (!was_input)
      throw Error(ErrorCode::kFailedPrecondition, lockstep::str("the saved position was made with the cache file '", file_,
                                                                "', which is gone; put it back, or begin the pass anew"));
    PositionReader reader(pass);
    input_->restore(reader);
    given_ = given;
  }

 private:
  std::string part() const { return lockstep::str(file_, ".part-", getpid(), "-", static_cast<const void*>(this)); }

  void open_file() {
    reader_ = std::make_unique<RecordReader>(file_);
    std::string_view signature;
    if (reader_->next(signature) && signature == signature_) return;
    throw Error(ErrorCode::kFailedPrecondition,
                lockstep::str("the cache file '", file_, "' is of another pipeline:\n", signature, "this one is\n", signature_,
                              "remove it, or use another name (workers that read their own files need a name each)"));
  }

  void skip(std::int64_t count) {
    for (Element element; given_ < count;)
      if (!read(element)) return;
  }

  bool read(Element& out) {
    if (is_at_end_) return false;
    std::string_view record;
    if (!reader_->next(record)) throw_cut_off();
    PositionReader bytes(record);
    is_at_end_ = !bytes.flag();
    if (is_at_end_ && bytes.number() != given_) throw_cut_off();
    if (is_at_end_) return false;
    out = bytes.element();
    ++given_;
    return true;
  }

  [[noreturn]] void throw_cut_off() const {
    throw Error(ErrorCode::kDataLoss, lockstep::str("the cache file '", file_, "' is cut off after ", given_,
                                                    " elements; remove it to make it again"));
  }

  void begin_file() {
    has_begun_ = true;
    writer_ = std::make_unique<RecordWriter>(part());
    writer_->write(signature_);
  }

  // Null: the last record.
  void write(const Element* element) {
    PositionWriter bytes;
    bytes.put(element != nullptr);
    if (element != nullptr) bytes.put(*element);
    else bytes.put(given_);
    writer_->write(std::move(bytes).take());
  }

  void finish_file() {
    if (!writer_) return;
    write(nullptr);
    writer_->close_on_disk();
    if (std::rename(part().c_str(), file_.c_str()) != 0)
      throw Error(ErrorCode::kUnavailable, lockstep::str("the cache file '", file_, "' cannot be made: ", errno_text(errno)));
    writer_ = nullptr;
  }

  const std::string file_;
  const std::string signature_;
  std::unique_ptr<RecordReader> reader_;    // null: there is no file yet
  std::unique_ptr<Stream<Element>> input_;  // null: there is
  std::unique_ptr<RecordWriter> writer_;
  std::int64_t given_ = 0;  // elements
  bool has_begun_ = false;
  bool is_at_end_ = false;  // of the file
};

class CacheNode final : public UnaryNode {
 public:
  CacheNode(NodePtr input, std::string file)
      : UnaryNode(std::move(input)), file_(std::move(file)), memory_(std::make_shared<CacheMemory>()) {}

  std::unique_ptr<Stream<Element>> open() const override {
    if (file_.empty()) return std::make_unique<MemoryCacheStream>(input_ptr(), memory_);
    return std::make_unique<FileCacheStream>(input_ptr(), file_);
  }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<CacheNode>(std::move(inputs.at(0)), file_);
  }
  void save_passes(PositionWriter& to) const override {
    const std::lock_guard lock(memory_->mu);
    to.begin("caches");
    to.put(std::string_view(memory_->beginning));
  }
  void restore_passes(PositionReader& from) const override {
    from.expect("caches");
    const auto beginning = from.bytes();
    const std::lock_guard lock(memory_->mu);
    if (!memory_->elements) memory_->beginning = beginning;
  }
  std::int64_t cardinality() const override { return input().cardinality(); }
  StaticShape static_shape() const override { return input().static_shape(); }
  std::string describe() const override { return file_.empty() ? "Cache()" : lockstep::str("Cache(", file_, ")"); }

 private:
  const std::string file_;  // empty: in memory
  const std::shared_ptr<CacheMemory> memory_;
};

}  // namespace

NodePtr make_cache(NodePtr input, std::string file) { return std::make_shared<CacheNode>(std::move(input), std::move(file)); }

}  // namespace lockstep::data::internal
