// Text classification: from which licence does a passage come? The texts are those that every Debian has in
// /usr/share/common-licenses: real English, but a toy of a task, and the passages that are kept back for the test are of the same
// five texts. Other files do as well, each is a class.
//
//   text_classification [FILE ...]
//   lockstep run -n 2 ./text_classification                      two workers, the same numbers but for rounding
//   lockstep run --hosts a,b --ssh ./text_classification         all machines have the files
#include <lockstep/lockstep.h>

#include <cctype>
#include <iostream>
#include <map>
#include <optional>

namespace ls = lockstep;
using ls::data::Dataset;

namespace {

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words(1);
  for (const unsigned char c : text) {
    if (std::isalpha(c)) words.back() += static_cast<char>(std::tolower(c));
    else if (!words.back().empty()) words.emplace_back();
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

// [passages]
// Three lines each; every fifth is for the test.
Dataset passages(const std::string& file, bool is_test) {
  return Dataset::text_lines({file})
      .filter([](const std::string& line) { return words_of(line).size() >= 4; })
      .batch(3)
      .map([](const ls::data::Bytes& lines) { return ls::data::to_element(ls::join(" ", lines.values)); })
      .enumerate()
      .filter([=](torch::Tensor number, const std::string&) { return (number.item<int64_t>() % 5 == 2) == is_test; })
      .map([](torch::Tensor, const std::string& text) { return ls::data::to_element(text); });
}
// [passages]

// [vocabulary]
// Words that the training passages have at least twice, in the order of the alphabet. 0 fills up, 1 is any other word.
class Vocabulary {
 public:
  explicit Vocabulary(const std::vector<std::string>& files) {
    std::map<std::string, int> counts;
    for (const auto& file : files)
      for (const auto& passage : passages(file, false))
        for (const auto& word : words_of(passage.text())) ++counts[word];
    for (const auto& [word, count] : counts)
      if (count >= 2) ids_.emplace(word, size());
  }
  int64_t size() const { return static_cast<int64_t>(ids_.size()) + 2; }
  torch::Tensor ids(const std::string& text) const {
    std::vector<int64_t> ids;
    for (const auto& word : words_of(text)) ids.push_back(ids_.contains(word) ? ids_.at(word) : 1);
    return torch::tensor(ids);
  }

 private:
  std::map<std::string, int64_t> ids_;
};
// [vocabulary]

// [dataset]
Dataset labelled(const std::vector<std::string>& files, const Vocabulary& vocabulary, bool is_test) {
  std::optional<Dataset> all;
  for (size_t label = 0; label < files.size(); ++label) {
    const auto part = passages(files[label], is_test).map([&vocabulary, label](const std::string& text) {
      return std::pair(vocabulary.ids(text), torch::tensor(static_cast<int64_t>(label)));
    });
    all = all ? all->concatenate(part) : part;
  }
  // By data: however many workers there are, a batch is the same rows. By file (the default for files) each would read its own.
  return all->cache().with_options({.auto_shard_policy = ls::AutoShardPolicy::kData});
}
// [dataset]

// [net]
// The mean of the words' vectors. Only those of words that are in the batch have gradients: sparse ones.
struct Net : torch::nn::Module {
  Net(int64_t words, int64_t classes)
      : table(register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(words, 32).padding_idx(0).sparse(true)))),
        out(register_module("out", torch::nn::Linear(32, classes))) {
    torch::nn::init::normal_(table->weight, 0.0, 0.1);
  }
  torch::Tensor forward(const torch::Tensor& ids) {
    const auto is_word = ids.ne(0).unsqueeze(2);
    return out((table(ids) * is_word).sum(1) / is_word.sum(1).clamp_min(1));
  }
  torch::nn::Embedding table;
  torch::nn::Linear out;
};
// [net]

}  // namespace

int main(int argc, char** argv) try {
  std::vector<std::string> files;
  for (int k = 1; k < argc; ++k)
    if (std::string(argv[k]) != "--test") files.emplace_back(argv[k]);
  if (files.empty())
    for (const char* name : {"Apache-2.0", "Artistic", "GFDL-1.3", "GPL-3", "MPL-2.0"})
      files.push_back(std::string("/usr/share/common-licenses/") + name);

  torch::manual_seed(1);
  ls::MultiWorkerMirroredStrategy strategy;
  const auto scope = strategy.scope();
  // [fit]
  const Vocabulary vocabulary(files);
  const auto train = labelled(files, vocabulary, false).shuffle(1000, 1).padded_batch(32);
  const auto test = labelled(files, vocabulary, true).padded_batch(32);

  ls::Model model(ls::mirrored<Net>(vocabulary.size(), static_cast<int64_t>(files.size())));
  model.compile({.optimizer = ls::Adagrad(1.0),
                 .loss = ls::sparse_categorical_crossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  model.fit(train, {.epochs = 20});
  const auto result = model.evaluate(test);

  const std::string sentence = "Whoever prints the manual must keep its title page and the texts on its cover.";
  const auto chances = model.predict(vocabulary.ids(sentence).unsqueeze(0)).softmax(1)[0];
  const auto best = static_cast<size_t>(chances.argmax().item<int64_t>());
  // [fit]
  std::cout << vocabulary.size() << " words; passages that it has not seen: " << ls::show(result) << "\n"
            << '"' << sentence << "\"\n  " << files[best] << ", " << chances.max().item<float>() * 100 << " %\n";
  return result.at("accuracy") > 0.6 ? 0 : 1;  // always saying the most frequent licence: 0.39
} catch (const std::exception& error) {
  std::cerr << "text_classification: " << error.what() << "\n";
  return 1;
}
