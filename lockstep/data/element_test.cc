#include "lockstep/data/element.h"

#include <sstream>
#include <string>

#include "lockstep/data/call_element.h"
#include "lockstep/replica/nest.h"
#include "tests/support/data_testing.h"

namespace lockstep::data {
namespace {

using testing::code_of;
using testing::ints;
using testing::text_of;
using testing::vector;

TEST(Element, HoldsComponentsInOrder) {
  const Element one(vector({1, 2}));
  EXPECT_EQ(one.size(), 1u);
  const Element two{vector({1}), vector({2})};
  EXPECT_EQ(two.size(), 2u);
  EXPECT_EQ(ints(two[1]), (testing::Ints{2}));
  EXPECT_EQ(code_of([&] { (void)two[2]; }), ErrorCode::kOutOfRange);
}

TEST(Element, FindsComponentsByName) {
  const Element element{{"a", vector({1})}, {"b.c", vector({2, 3})}};
  EXPECT_EQ(ints(element.at("b.c")), (testing::Ints{2, 3}));
  EXPECT_EQ(element.names(), (std::vector<std::string>{"a", "b.c"}));
  EXPECT_EQ(code_of([&] { (void)element.at("b"); }), ErrorCode::kInvalidArgument);
  EXPECT_NE(text_of([&] { (void)element.at("b"); }).find("b.c"), std::string::npos);
  EXPECT_EQ(code_of([&] { (void)Element(vector({1})).at(""); }), ErrorCode::kInvalidArgument);
}

TEST(Element, KeepsByteStringsApartFromTensors) {
  const Element element(std::vector<Component>{{"line", Bytes{{"abc"}, {}}}, {"x", vector({1})}});
  EXPECT_EQ(code_of([&] { (void)element[0]; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(element.components()[0].bytes().values[0], "abc");
  EXPECT_EQ(code_of([&] { (void)element.components()[1].bytes(); }), ErrorCode::kInvalidArgument);
}

TEST(Element, IsWalkedByNest) {
  Element element(std::vector<Component>{{"line", Bytes{{"abc"}, {}}}, {"x", vector({1})}, {"", vector({5})}});
  nest::for_each_leaf(element, [](at::Tensor& leaf) { leaf = leaf + 1; });
  EXPECT_EQ(ints(element[1]), (testing::Ints{2}));
  EXPECT_EQ(ints(element[2]), (testing::Ints{6}));
  int count = 0;
  const Element& constant = element;
  nest::for_each_leaf(constant, [&](const at::Tensor&) { ++count; });
  EXPECT_EQ(count, 2);
}

TEST(Element, PrintsNamesDtypesAndShapes) {
  std::ostringstream out;
  out << Element{{"image", at::zeros({2, 3})}, {"label", vector({1, 2})}};
  EXPECT_EQ(out.str(), "Element(image: float32 [2, 3], label: int64 [2])");
}

TEST(CallWithElement, PassesTheElementWhole) {
  const Element element{vector({1}), vector({2})};
  EXPECT_EQ(call_with_element([](const Element& whole) { return whole.size(); }, element), 2u);
  EXPECT_EQ(call_with_element([](Element whole) { return whole.size(); }, element), 2u);
  static_assert(!takes_tensors_v<std::size_t (*)(const Element&)>);
}

TEST(CallWithElement, UnpacksTensors) {
  const Element element{vector({1}), vector({2})};
  const auto sum = call_with_element([](const at::Tensor& a, at::Tensor b) { return a + b; }, element);
  EXPECT_EQ(ints(sum), (testing::Ints{3}));
  const auto generic = call_with_element([](auto a, auto b) { return a - b; }, element);
  EXPECT_EQ(ints(generic), (testing::Ints{-1}));
  int calls = 0;
  call_with_element([&](at::Tensor, at::Tensor) { ++calls; }, element);
  EXPECT_EQ(calls, 1);
  static_assert(std::is_same_v<element_result_t<int (*)(at::Tensor)>, int>);
  static_assert(std::is_same_v<element_result_t<void (*)(const Element&)>, void>);
}

TEST(CallWithElement, PacksTakeAnyNumber) {
  const auto count = [](auto... tensors) { return sizeof...(tensors); };
  EXPECT_EQ(call_with_element(count, Element(vector({1}))), 1u);
  EXPECT_EQ(call_with_element(count, Element{vector({1}), vector({1}), vector({1})}), 3u);
}

TEST(CallWithElement, RefusesAnotherNumberOfComponents) {
  const auto call = [] { call_with_element([](at::Tensor, at::Tensor) {}, Element(vector({1}))); };
  EXPECT_EQ(code_of(call), ErrorCode::kInvalidArgument);
  EXPECT_NE(text_of(call).find("1 component"), std::string::npos);
  EXPECT_NE(text_of(call).find("takes 2"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::data
