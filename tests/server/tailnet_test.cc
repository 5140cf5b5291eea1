// Which outputs of `tailscale ip -4` are believed.
#include "server/tailnet.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace mference::server {
namespace {

TEST(TailnetTest, TakesOneAddressOfItsRange) {
  EXPECT_EQ(ParseTailnetAddress("100.64.0.0\n"), "100.64.0.0");
  EXPECT_EQ(ParseTailnetAddress(" 100.101.102.103 \r\n"), "100.101.102.103");
  EXPECT_EQ(ParseTailnetAddress("100.127.255.255"), "100.127.255.255");
}

TEST(TailnetTest, RefusesEverythingElse) {
  for (const char* output : {"",
                             "\n",
                             "100.64.0.1 100.64.0.2",
                             "100.64.0.1\n100.64.0.2\n",
                             "fd7a:115c:a1e0::1",
                             "100.64.0",
                             "100.64.0.1.2",
                             "100.64.0.256",
                             "100.064.0.1",
                             "100.64.0.01",
                             "100.64..1",
                             "100.64.0.-1",
                             "100.64.0.1:80",
                             "0.0.0.0",
                             "127.0.0.1",
                             "10.0.0.1",
                             "192.168.1.1",
                             "172.16.0.1",
                             "100.63.255.255",
                             "100.128.0.0",
                             "101.64.0.1",
                             "tailscale is stopped",
                             "100.64.0.1000",
                             "+100.64.0.1",
                             "1e2.64.0.1"}) {
    EXPECT_THROW(ParseTailnetAddress(output), Error) << output;
  }
}

TEST(TailnetTest, QuotesLittleOfWhatItRefuses) {
  try {
    ParseTailnetAddress(std::string(5000, 'x'));
    FAIL();
  } catch (const Error& error) {
    EXPECT_LT(std::string(error.what()).size(), 200u);
  }
}

}  // namespace
}  // namespace mference::server
