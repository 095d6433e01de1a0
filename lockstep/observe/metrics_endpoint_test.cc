#include "lockstep/observe/metrics_endpoint.h"

#include <limits>

#include "lockstep/cluster/socket.h"
#include "tests/support/scrape.h"
#include "tests/support/testing.h"

namespace lockstep {
namespace {

using internal::Socket;
using testing::all_of;
using ::testing::HasSubstr;
using testing::ThrowsCode;
using namespace std::chrono_literals;

Socket connect_to(const MetricsEndpoint& endpoint) {
  return Socket::connect({"127.0.0.1", endpoint.port()}, Deadline::after(10s));
}

std::string ask(const MetricsEndpoint& endpoint, const std::string& request) {
  return testing::scrape(endpoint.port(), request);
}

TEST(MetricsRegistry, TextIsPrometheus) {
  MetricsRegistry registry;
  registry.counter("steps_total", "Steps.\nAll \\ of them", {{"job", "a\"b\\c\nd"}}).add(3);
  registry.counter("steps_total", "", {{"job", "other"}}).add(-5);
  registry.gauge("loss", "The loss").set(std::numeric_limits<double>::quiet_NaN());
  registry.gauge("a:rate", "").set(1e-7);
  registry.gauge("b", "").set(-std::numeric_limits<double>::infinity());
  EXPECT_EQ(registry.text(),
            "# HELP a:rate \n# TYPE a:rate gauge\na:rate 1e-07\n"
            "# HELP b \n# TYPE b gauge\nb -Inf\n"
            "# HELP loss The loss\n# TYPE loss gauge\nloss NaN\n"
            "# HELP steps_total Steps.\\nAll \\\\ of them\n# TYPE steps_total counter\n"
            "steps_total{job=\"a\\\"b\\\\c\\nd\"} 3\nsteps_total{job=\"other\"} 0\n");
  EXPECT_EQ(&registry.gauge("loss", "another text"), &registry.gauge("loss", ""));
  EXPECT_THAT([&] { registry.gauge("steps_total", ""); }, ThrowsCode(ErrorCode::kInvalidArgument, "is a counter"));
  for (const auto* name : {"", "1a", "a b", "a-b", "\xc3\xa4"})
    EXPECT_THAT([&] { registry.gauge(name, ""); }, ThrowsCode(ErrorCode::kInvalidArgument, "metric name"));
  EXPECT_THAT([&] { registry.gauge("x", "", {{"__y", ""}}); }, ThrowsCode(ErrorCode::kInvalidArgument, "__y"));
  EXPECT_THAT([&] { registry.gauge("x", "", {{"a:b", ""}}); }, ThrowsCode(ErrorCode::kInvalidArgument, "a:b"));
}

TEST(MetricsEndpoint, AnswersRequests) {
  const auto registry = std::make_shared<MetricsRegistry>();
  const MetricsEndpoint endpoint("0", registry);
  ASSERT_GT(endpoint.port(), 0);
  registry->gauge("loss", "The loss").set(0.5);
  const auto answer = ask(endpoint, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(answer, ::testing::StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain; version=0.0.4"));
  EXPECT_THAT(answer, ::testing::EndsWith("\r\n\r\n# HELP loss The loss\n# TYPE loss gauge\nloss 0.5\n"));
  EXPECT_THAT(ask(endpoint, "GET /metrics?x=1 HTTP/1.0\n\n"), HasSubstr("loss 0.5"));
  EXPECT_THAT(ask(endpoint, "HEAD /metrics HTTP/1.1\r\n\r\n"), ::testing::EndsWith("\r\n\r\n"));
  EXPECT_THAT(ask(endpoint, "GET / HTTP/1.1\r\n\r\n"), HasSubstr("404"));
  EXPECT_THAT(ask(endpoint, "POST /metrics HTTP/1.1\r\n\r\n"), HasSubstr("405"));
  EXPECT_THAT(ask(endpoint, "\r\n\r\n"), HasSubstr("400"));
  EXPECT_THAT(ask(endpoint, std::string(100, '\0') + "\r\n\r\n"), HasSubstr("400"));
  EXPECT_THAT(ask(endpoint, "GET /" + std::string(8200, 'a')), HasSubstr("431"));
}

TEST(MetricsEndpoint, SlowClientsDisturbNobody) {
  const auto registry = std::make_shared<MetricsRegistry>();
  for (int k = 0; k < 50'000; ++k) registry->gauge("many", "", {{"k", std::to_string(k)}}).set(k);
  MetricsEndpoint endpoint("127.0.0.1:0", registry);
  std::vector<Socket> silent;
  for (int k = 0; k < 12; ++k) silent.push_back(connect_to(endpoint));
  const std::string request = "GET /metrics HTTP/1.1\r\n\r\n";
  auto unread = connect_to(endpoint);  // asks for more than the system keeps for it
  unread.send(request.data(), request.size(), Deadline::after(10s));
  { auto gone = connect_to(endpoint); }
  for (int k = 0; k < 5; ++k) EXPECT_THAT(ask(endpoint, request), HasSubstr("many{k=\"49999\"} 49999"));
  for (int k = 0; k < 30; ++k) silent.push_back(connect_to(endpoint));
  EXPECT_THAT(ask(endpoint, request), HasSubstr("many{k=\"49999\"} 49999"));
  EXPECT_EQ(all_of(silent[0]), "");  // closed, to make room
}

TEST(MetricsEndpoint, EndsAtOnceWhileClientsWait) {
  auto endpoint = std::make_unique<MetricsEndpoint>("0", std::make_shared<MetricsRegistry>());
  const auto silent = connect_to(*endpoint);
  EXPECT_LT(testing::time_of([&] { endpoint.reset(); }).count(), 2);
  EXPECT_EQ(all_of(silent), "");
}

TEST(MetricsEndpoint, BadAddressesAreRefused) {
  const auto registry = std::make_shared<MetricsRegistry>();
  const MetricsEndpoint first("0", registry);
  const auto taken = std::to_string(first.port());
  EXPECT_THAT([&] { MetricsEndpoint second(taken, registry); }, ThrowsCode(ErrorCode::kFailedPrecondition, taken));
  EXPECT_THAT([&] { MetricsEndpoint second("65536", registry); }, ThrowsCode(ErrorCode::kInvalidArgument, "65536"));
  EXPECT_THAT([&] { MetricsEndpoint second("-1", registry); }, ThrowsCode(ErrorCode::kInvalidArgument, "-1"));
  EXPECT_THAT([&] { MetricsEndpoint second("nonsense", registry); }, ThrowsCode(ErrorCode::kInvalidArgument, "nonsense"));
  EXPECT_THAT([&] { MetricsEndpoint second("0", nullptr); }, ThrowsCode(ErrorCode::kInvalidArgument, "registry"));
}

}  // namespace
}  // namespace lockstep
