#pragma once

#include <concepts>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/trackable.h"
#include "lockstep/train/callbacks/training.h"
#include "lockstep/train/logs.h"

namespace lockstep {

// Who is told of a step or an epoch before whom.
enum class Turn {
  kChecks,  // looks whether a step was good, and may fail() training before others save
  kUsual,
  kSaves,  // saves the whole of a training, when the others know
  kKeeps,  // brings it back too: the last, and the first that is told of the beginning
};

// What is told how training goes. Derive from it, override what you need, and give it to fit() or evaluate().
//
// All functions are called on the thread that called fit(), outside run(), on every worker: write files only where
// training.is_chief(). What they throw ends fit(), which throws it.
class Callback {
 public:
  virtual ~Callback() = default;

  virtual void on_train_begin(Training&) {}
  virtual void on_train_end(Training&) {}
  // In its place when fit() ends with an error, which may be this worker's alone: let go of files and locks, and ask nobody.
  virtual void on_train_failed(Training&) {}
  virtual void on_epoch_begin(Training&) {}
  // `logs`: of the whole job, equal on all workers. What is added to them, the callbacks after this one and History see too.
  virtual void on_epoch_end(Training&, Logs& /*logs*/) {}
  virtual void on_train_batch_begin(Training&) {}
  virtual void on_train_batch_end(Training&) {}
  virtual void on_test_begin(Training&) {}
  virtual void on_test_batch_end(Training&) {}
  virtual void on_test_end(Training&, const Logs& /*logs*/) {}

  virtual Turn turn() const { return Turn::kUsual; }

  // Under a ParameterServerStrategy steps run on workers, several at once: on_*_batch_end is told of each a little after its
  // end, when the weights have gone on, and on_train_batch_begin of none. A callback that overrides them is refused there,
  // unless it says that it can do with that.
  virtual bool can_be_late() const { return false; }
  // There: after how many more steps it must be told of one while none runs, with the weights and logs of the steps so far and
  // no others; 0: never. The end of an epoch is always so. All workers wait for such a moment.
  virtual std::int64_t steps_until_pause() const { return 0; }

  // What it has to remember when training goes on in another process, and that again. BackupAndRestore asks.
  virtual CheckpointPart save() const { return {}; }
  virtual void restore(const CheckpointPart&) {}
};

namespace internal {

// Whether a class of callbacks overrides one of on_*_batch_*. One that cannot be looked at (private, overloaded) does.
template <typename C>
concept IgnoresBatches = requires {
  requires std::same_as<decltype(&C::on_train_batch_begin), void (Callback::*)(Training&)>;
  requires std::same_as<decltype(&C::on_train_batch_end), void (Callback::*)(Training&)>;
  requires std::same_as<decltype(&C::on_test_batch_end), void (Callback::*)(Training&)>;
};

}  // namespace internal

// A list of callbacks of different types: {EarlyStopping(), CSVLogger("log.csv")}. One given by value is copied; give a
// std::shared_ptr to look at it afterwards.
class Callbacks {
 public:
  class Item {
   public:
    template <std::derived_from<Callback> C>
    Item(C callback)  // NOLINT: any callback is an item
        : callback_(std::make_shared<C>(std::move(callback))), ignores_batches_(internal::IgnoresBatches<C>) {}
    template <std::derived_from<Callback> C>
    Item(std::shared_ptr<C> callback)  // NOLINT
        : callback_(std::move(callback)), ignores_batches_(internal::IgnoresBatches<C>) {}

   private:
    friend class Callbacks;
    std::shared_ptr<Callback> callback_;
    bool ignores_batches_;
  };

  Callbacks() = default;
  Callbacks(std::initializer_list<Item> items);  // throws kInvalidArgument for a null pointer

  void add(const Item& item);
  // By their turns; those of one turn as they are.
  void put_in_order();

  auto begin() const noexcept { return list_.begin(); }
  auto end() const noexcept { return list_.end(); }
  std::size_t size() const noexcept { return list_.size(); }

  // Those that must be told of every step at its end: see Callback::can_be_late(). By the type they were given as.
  std::vector<std::shared_ptr<Callback>> batch_level() const;

 private:
  std::vector<std::shared_ptr<Callback>> list_;
  std::vector<std::shared_ptr<Callback>> watchers_;  // of them, those whose type overrides on_*_batch_*
};

}  // namespace lockstep
