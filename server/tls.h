// TLS of the server: its files, checked before they are used and read again while it runs.
//
// Thread safety: free functions.
#ifndef MEMCGD_SERVER_TLS_H_
#define MEMCGD_SERVER_TLS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "absl/status/status.h"

namespace memcgd::server {

// Files of PEM.  No certificate: no TLS.
struct TlsFiles {
  std::string cert;       // ours, and those between it and the root
  std::string key;        // ours, without passphrase
  std::string client_ca;  // by whose certificates clients are known; empty: they need none

  bool empty() const { return cert.empty() && key.empty() && client_ca.empty(); }
};

// INVALID_ARGUMENT names the file: not readable, no PEM, expired, or a key that is not the certificate's.
absl::Status CheckTlsFiles(const TlsFiles& files);

// Without files: plaintext.  The files are looked at every second: whoever connects then is met with what
// they hold; connections that stand are not touched.  Files that cannot be read leave what was read before.
std::shared_ptr<grpc::ServerCredentials> ServerCredentialsOf(const TlsFiles& files);

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_TLS_H_
