#include "lockstep/ps/per_worker_values.h"

#include "lockstep/ps/scheduling.h"

namespace lockstep {

namespace ps {

std::shared_ptr<const ResourceRecord> ResourceTable::add(Call call) {
  // Of all coordinators of this process, so that one's values are not taken for another's.
  static std::atomic<std::uint64_t> g_next_id{1};
  const auto id = g_next_id.fetch_add(1);
  call.work.id = id;
  const auto drop = [table = weak_from_this()](const ResourceRecord* record) {
    delete record;  // NOLINT: a deleter
    if (const auto alive = table.lock()) ++alive->version_;
  };
  const std::shared_ptr<const ResourceRecord> record(new ResourceRecord{id, std::move(call)}, drop);
  const std::lock_guard lock(mu_);
  std::erase_if(records_, [](const auto& entry) { return entry.second.expired(); });
  records_.emplace(id, record);
  ++version_;
  return record;
}

ResourceTable::Changes ResourceTable::changes(const std::set<std::uint64_t>& there) const {
  Changes changes;
  const std::lock_guard lock(mu_);
  for (const auto& [id, weak] : records_)
    if (auto record = weak.lock(); record && !there.contains(id)) changes.creations.push_back(std::move(record));
  for (const auto id : there) {
    const auto found = records_.find(id);
    if (found == records_.end() || found->second.expired()) changes.drops.push_back(id);
  }
  return changes;
}

}  // namespace ps

PerWorkerIterator PerWorkerDataset::make_iterator() const {
  constexpr auto begin = [](const data::Dataset& dataset) { return dataset.make_iterator(); };
  return PerWorkerIterator(table_->add(ps::make_call(begin, datasets_)));
}

data::Element next_element(data::Iterator& iterator) {
  auto element = iterator.next();
  if (!element) throw Error(ErrorCode::kOutOfRange, "the dataset has no further element");
  return std::move(*element);
}

}  // namespace lockstep
