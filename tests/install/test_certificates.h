// A throw-away certificate authority and a server certificate that it signed.
#pragma once

#include <string>

namespace mference::testing {

struct TestCertificates {
  std::string authority_pem;
  std::string server_pem;
  std::string server_key_pem;
};

// For localhost and 127.0.0.1, valid around now; made once per process.
const TestCertificates& Certificates();

}  // namespace mference::testing
