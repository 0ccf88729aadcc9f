// Who the server is and who we are: TLS and a bearer token, for every channel of ours.
//
// Thread safety: plain values and free functions.
#ifndef MEMCGD_CLIENT_CREDENTIALS_H_
#define MEMCGD_CLIENT_CREDENTIALS_H_

#include <grpcpp/channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace memcgd::client {

// Names of files; empty: none.
struct Credentials {
  std::string tls_ca;      // PEM: by which the server's certificate must be signed.  None: plaintext
  std::string tls_cert;    // PEM: our certificate chain, where the server asks for one
  std::string tls_key;     // PEM: its private key
  std::string token_file;  // one line: the bearer token that every call carries
};

// A channel that proves what `credentials` hold.  The files of TLS are looked at again every 10 s, so that
// what connects later uses renewed ones.  INVALID_ARGUMENT names the file or the flag that is wrong; a token
// goes over plaintext only to an address of this machine.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const std::string& address,
                                                           const Credentials& credentials,
                                                           const grpc::ChannelArguments& arguments);

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_CREDENTIALS_H_
