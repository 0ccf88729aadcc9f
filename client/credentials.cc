#include "client/credentials.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <grpcpp/support/client_interceptor.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace memcgd::client {
namespace {

namespace tls = grpc::experimental;

constexpr unsigned kRefreshSeconds = 10;
constexpr size_t kMaxTokenBytes = 4096;  // the server takes 16 KiB of metadata in all

// Adds the token to each call.  gRPC's own credentials for calls refuse to go over plaintext, to a socket of
// this machine too.
class AddToken final : public tls::Interceptor {
 public:
  explicit AddToken(const std::string& authorization) : authorization_(authorization) {}

  void Intercept(tls::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(tls::InterceptionHookPoints::PRE_SEND_INITIAL_METADATA))
      methods->GetSendInitialMetadata()->emplace("authorization", authorization_);
    methods->Proceed();
  }

 private:
  const std::string& authorization_;  // the factory's, which lives as long as the channel
};

class AddTokenFactory final : public tls::ClientInterceptorFactoryInterface {
 public:
  explicit AddTokenFactory(const std::string& token) : authorization_(absl::StrCat("Bearer ", token)) {}

  tls::Interceptor* CreateClientInterceptor(tls::ClientRpcInfo*) override {
    return new AddToken(authorization_);  // gRPC's to delete
  }

 private:
  const std::string authorization_;
};

bool IsLocal(const std::string& address) {
  for (const char* prefix : {"unix:", "localhost:", "[::1]:"}) {
    if (absl::StartsWith(address, prefix)) return true;
  }
  const bool is_number = address.find_first_not_of("0123456789.:") == address.npos;
  return is_number && absl::StartsWith(address, "127.");
}

absl::Status CheckReadable(const char* flag, const std::string& file) {
  if (file.empty()) return absl::OkStatus();
  std::ifstream in(file);
  if (in.get() != std::ifstream::traits_type::eof()) return absl::OkStatus();
  const int error = errno;
  return absl::InvalidArgumentError(
      absl::StrCat(flag, ": cannot read ", file, ": ", error != 0 ? std::strerror(error) : "it is empty"));
}

absl::StatusOr<std::string> ReadToken(const std::string& file) {
  const absl::Status status = CheckReadable("--token-file", file);
  if (!status.ok()) return status;
  std::ifstream in(file);
  std::string token, more;
  std::getline(in, token);
  if (!token.empty() && token.back() == '\r') token.pop_back();
  const bool printable =
      token.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/=") ==
      token.npos;
  if (!token.empty() && token.size() <= kMaxTokenBytes && printable && !std::getline(in, more)) return token;
  return absl::InvalidArgumentError(absl::StrCat(
      "--token-file: ", file, " is not one line with a token of letters, digits and -._~+/= (at most ",
      kMaxTokenBytes, " bytes)"));
}

absl::Status CheckFiles(const std::string& address, const Credentials& credentials) {
  if (credentials.tls_ca.empty() && !(credentials.tls_cert.empty() && credentials.tls_key.empty()))
    return absl::InvalidArgumentError("--tls-cert and --tls-key need --tls-ca");
  if (credentials.tls_cert.empty() != credentials.tls_key.empty())
    return absl::InvalidArgumentError("--tls-cert and --tls-key are given together or not at all");
  if (!credentials.token_file.empty() && credentials.tls_ca.empty() && !IsLocal(address)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--token-file: the token could be read on its way to ", address, "; give --tls-ca"));
  }
  absl::Status status = CheckReadable("--tls-ca", credentials.tls_ca);
  status.Update(CheckReadable("--tls-cert", credentials.tls_cert));
  status.Update(CheckReadable("--tls-key", credentials.tls_key));
  return status;
}

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsOf(const Credentials& credentials) {
  if (credentials.tls_ca.empty()) return grpc::InsecureChannelCredentials();
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(std::make_shared<tls::FileWatcherCertificateProvider>(
      credentials.tls_key, credentials.tls_cert, credentials.tls_ca, kRefreshSeconds));
  options.watch_root_certs();
  if (!credentials.tls_cert.empty()) options.watch_identity_key_cert_pairs();
  return tls::TlsCredentials(options);
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const std::string& address,
                                                           const Credentials& credentials,
                                                           const grpc::ChannelArguments& arguments) {
  const absl::Status status = CheckFiles(address, credentials);
  if (!status.ok()) return status;
  std::vector<std::unique_ptr<tls::ClientInterceptorFactoryInterface>> interceptors;
  if (!credentials.token_file.empty()) {
    const absl::StatusOr<std::string> token = ReadToken(credentials.token_file);
    if (!token.ok()) return token.status();
    interceptors.push_back(std::make_unique<AddTokenFactory>(*token));
  }
  return tls::CreateCustomChannelWithInterceptors(address, ChannelCredentialsOf(credentials), arguments,
                                                  std::move(interceptors));
}

}  // namespace memcgd::client
