#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "lockstep/cluster/coordination.h"
#include "tests/support/testing.h"

// The coordination service with certificates that the command `openssl` makes.

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using testing::ThrowsCode;

const ClusterSpec kSpec({{"worker", {"127.0.0.1:0", "127.0.0.1:0"}}});
const std::vector<Task> kTasks = {{"worker", 0}, {"worker", 1}};

// Two authorities, and a certificate of each for the machine 127.0.0.1, in a folder that is removed at the end.
class Certificates {
 public:
  Certificates() {
    auto form = ::testing::TempDir() + "lockstep_tls_XXXXXX";
    folder_ = mkdtemp(form.data());
    std::ofstream(path("names")) << "subjectAltName=IP:127.0.0.1\n";
    for (const std::string authority : {"ours", "theirs"}) {
      openssl(str("req -x509 -days 2 -subj /CN=", authority, new_key(authority), " -out ", path(authority + ".pem")));
      const auto node = authority + "_node";
      openssl(str("req -new -subj /CN=node", new_key(node), " -out ", path(node + ".request")));
      openssl(str("x509 -req -days 2 -in ", path(node + ".request"), " -CA ", path(authority + ".pem"), " -CAkey ",
                  path(authority + ".key"), " -CAcreateserial -extfile ", path("names"), " -out ", path(node + ".pem")));
    }
  }
  ~Certificates() { EXPECT_EQ(std::system(str("rm -r '", folder_, "'").c_str()), 0); }
  Certificates(const Certificates&) = delete;
  Certificates& operator=(const Certificates&) = delete;

  // Who trusts `authority` and shows the certificate that `issuer` gave it.
  TlsFiles files(const std::string& authority, const std::string& issuer) const {
    return {path(authority + ".pem"), path(issuer + "_node.pem"), path(issuer + "_node.key")};
  }
  std::string path(const std::string& name) const { return str(folder_, "/", name); }

 private:
  std::string new_key(const std::string& name) const {
    return str(" -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ", path(name + ".key"));
  }
  void openssl(const std::string& arguments) const {
    const auto command = str("openssl ", arguments, " >'", path("log"), "' 2>&1 || { cat '", path("log"), "'; exit 1; }");
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }

  std::string folder_;
};

struct CoordinationTls : ::testing::Test {
  static CoordinationOptions options(const TlsFiles& tls, std::chrono::nanoseconds join_timeout = 20s) {
    return {.secret = "secret", .tls = tls, .join_timeout = join_timeout, .farewell = 1s};
  }
  std::unique_ptr<CoordinationClient> join(std::int64_t index, const CoordinationOptions& with) const {
    return std::make_unique<CoordinationClient>(Address{"127.0.0.1", server.port()}, kSpec, Task{"worker", index}, with);
  }
  // Who joins with these is refused, within its deadline, with these words.
  template <typename... Words>
  void expect_refused(const TlsFiles& tls, const Words&... words) const {
    const auto seconds = testing::time_of([&] {
      EXPECT_THAT([&] { join(1, options(tls, 1s)); },
                  ThrowsCode(ErrorCode::kDeadlineExceeded, "worker 1", str("127.0.0.1:", server.port()).c_str(), words...));
    });
    EXPECT_LT(seconds.count(), 5);
  }

  const Certificates certificates;
  const CoordinationServer server{{"127.0.0.1", 0}, kSpec, kTasks, options(certificates.files("ours", "ours"))};
};

TEST_F(CoordinationTls, TasksOfOneAuthorityMeet) {
  testing::on_threads(2, [&](int k) {
    const auto client = join(k, options(certificates.files("ours", "ours")));
    client->put(str("from ", k), "x");
    EXPECT_EQ(client->get(str("from ", 1 - k), 10s), "x");
    client->barrier("the end", 10s);
  });
  EXPECT_EQ(inspect_cluster({"127.0.0.1", server.port()}, 5s, certificates.files("ours", "ours")).members.size(), 2U);
}

TEST_F(CoordinationTls, ATaskWithoutCertificatesIsRefusedInTime) { expect_refused({}, "The port is open", "LOCKSTEP_TLS_CA"); }

TEST_F(CoordinationTls, ACoordinatorOfAnotherAuthorityIsNotTrusted) {
  expect_refused(certificates.files("theirs", "ours"), "handshake failed");
}

TEST_F(CoordinationTls, ATaskOfAnotherAuthorityIsRefusedInTime) {
  expect_refused(certificates.files("ours", "theirs"), "The port is open", "certificate of one authority");
}

// The refused did no harm.
TEST_F(CoordinationTls, OthersGoOnBesideTheRefused) {
  const auto zero = join(0, options(certificates.files("ours", "ours")));
  expect_refused(certificates.files("ours", "theirs"));
  zero->put("still", "here");
  EXPECT_EQ(zero->get("still", 5s), "here");
}

TEST_F(CoordinationTls, AKeyThatDoesNotFitIsNamed) {
  auto files = certificates.files("ours", "ours");
  files.key = certificates.path("theirs_node.key");
  EXPECT_THAT(
      [&] {
        CoordinationServer({"127.0.0.1", 0}, kSpec, kTasks, options(files));
      },
      ThrowsCode(ErrorCode::kFailedPrecondition, "certificate"));
  EXPECT_THAT([&] { join(1, options(files)); },
              ThrowsCode(ErrorCode::kInvalidArgument, "do not fit together", "theirs_node.key"));
  files = certificates.files("ours", "ours");
  files.certificate_authority = files.key;
  EXPECT_THAT([&] { join(1, options(files)); }, ThrowsCode(ErrorCode::kInvalidArgument, "or are no PEM files"));
}

}  // namespace
}  // namespace lockstep
