// What a server of calls says when it refuses a client.
#include "cm/rpc_frame.h"

#include <catch2/catch.hpp>

namespace uroce {

TEST_CASE("a refusal says why, as far as it is text and has room", "[cm][rpc]") {
  CHECK(rpc_refusal_text(rpc_refusal("no room")) == "no room");
  CHECK(rpc_refusal_text(rpc_refusal("")).empty());
  CHECK(rpc_refusal_text(rpc_refusal("no\nroom")) == "no");
  CHECK(rpc_refusal_text(rpc_refusal("no\xffroom")) == "no");
  const std::string longest(kCmRejectBytes - kRpcGreeting.size(), 'x');
  CHECK(rpc_refusal_text(rpc_refusal(longest)) == longest);
  CHECK(rpc_refusal_text(rpc_refusal(longest + "y")) == longest);
}

TEST_CASE("what is no refusal of a server of calls says nothing", "[cm][rpc]") {
  CHECK(rpc_refusal_text({}).empty());
  auto data = rpc_refusal("no room");
  CHECK(rpc_refusal_text(std::span(data).first(kRpcGreeting.size())).empty());
  data[0] = std::byte{'U'};
  CHECK(rpc_refusal_text(data).empty());
}

}  // namespace uroce
