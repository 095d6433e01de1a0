#include <cstdlib>

#include "tests/fuzz/fuzz.h"
#include "tools/lockstep/messages.h"

// What a stranger may send to a launcher's port. A message that was read is written as it came.

using namespace lockstep::tool;

namespace {

void read_body(const Message& message) {
  switch (message.kind) {
    case MessageKind::kHello:
      if (pack(unpack_hello(message.body)).empty()) std::abort();
      return;
    case MessageKind::kStart: unpack_work(pack(unpack_work(message.body))); return;
    case MessageKind::kEnded: unpack_report(pack(unpack_report(message.body))); return;
    case MessageKind::kBye: unpack_farewell(pack(unpack_farewell(message.body))); return;
    case MessageKind::kOutput: unpack_output(message.body); return;
    default: unpack_numbers(message.body); return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMostBytes = 4096;
  lockstep::fuzz::expect_typed_errors(data, size, [](const std::string& text) {
    MessageReader whole(kMostBytes);
    MessageReader pieces(kMostBytes);
    whole.add(text);
    std::string written;
    for (const char byte : text) {
      pieces.add({&byte, 1});
      while (const auto message = pieces.next()) {
        if (whole.next() != message) std::abort();
        written += to_bytes(*message);
      }
    }
    if (!text.starts_with(written)) std::abort();
  });
  MessageReader reader(kMostBytes);
  reader.add({reinterpret_cast<const char*>(data), size});
  std::optional<Message> message;
  do {
    message.reset();
    lockstep::fuzz::expect_typed_errors(data, size, [&](const std::string&) {
      message = reader.next();
      if (message) read_body(*message);
    });
  } while (message);
  return 0;
}
