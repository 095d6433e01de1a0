#pragma once

namespace lockstep::internal {

// While one is alive on a thread, a variable that is made there is kInvalidArgument: a function that may be called many times,
// and on other machines, would make another one each time.
class NoVariables {
 public:
  // `where` is told to the caller: "a function that makes a dataset". It must outlive this.
  explicit NoVariables(const char* where);
  ~NoVariables();
  NoVariables(const NoVariables&) = delete;
  NoVariables& operator=(const NoVariables&) = delete;

 private:
  const char* const previous_;
};

}  // namespace lockstep::internal
