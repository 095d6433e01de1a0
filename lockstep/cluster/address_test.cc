#include "lockstep/cluster/address.h"

#include "tests/support/testing.h"

namespace lockstep {
namespace {

TEST(Address, ReadsNamesAndBothKindsOfNumbers) {
  EXPECT_EQ(Address::parse("host:2222", "worker 0"), (Address{"host", 2222}));
  EXPECT_EQ(Address::parse("10.0.0.1:0", "worker 0"), (Address{"10.0.0.1", 0}));
  EXPECT_EQ(Address::parse("[fe80::1]:65535", "worker 0"), (Address{"fe80::1", 65535}));
  EXPECT_EQ(str(Address{"fe80::1", 1}), "[fe80::1]:1");
}

TEST(Address, SaysWhatIsMissing) {
  using testing::ThrowsCode;
  EXPECT_THAT([] { Address::parse("host", "worker 2"); }, ThrowsCode(ErrorCode::kInvalidArgument, "worker 2", "no port"));
  EXPECT_THAT([] { Address::parse(":1", "worker 2"); }, ThrowsCode(ErrorCode::kInvalidArgument, "no host"));
  EXPECT_THAT([] { Address::parse("::1:22", "worker 2"); }, ThrowsCode(ErrorCode::kInvalidArgument, "brackets"));
  for (const char* bad :
       {"", "a:", "a:x", "a:65536", "a:-1", "a:99999999999", "[::1]", "[::1", "[]:1", "a:1x", "[[a]:1", "a]:1", "a b:1"})
    EXPECT_EQ(testing::code_of([&] { Address::parse(bad, "worker 0"); }), ErrorCode::kInvalidArgument) << bad;
}

}  // namespace
}  // namespace lockstep
