#include "server/tls.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <vector>

#include "server/regular_file.h"
#include "server/text.h"

namespace memcgd::server {
namespace {

using BioPtr = std::unique_ptr<BIO, decltype(&BIO_free)>;
using KeyPtr = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using CertificatePtr = std::unique_ptr<X509, decltype(&X509_free)>;

constexpr unsigned kRefreshSeconds = 1;

BioPtr BioOf(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), &BIO_free};
}

// Without it OpenSSL asks on the terminal.
int NoPassphrase(char*, int, int, void*) { return -1; }

// The certificates of the file, all within their time.
absl::StatusOr<std::vector<CertificatePtr>> ReadCertificates(std::string_view what, const std::string& file) {
  const absl::StatusOr<std::string> text = ReadRegularFile(what, file);
  if (!text.ok()) return text.status();
  const auto refuse = [&](std::string_view why) {
    return absl::InvalidArgumentError(Cat(what, " ", file, ": ", why));
  };
  const BioPtr bio = BioOf(*text);
  std::vector<CertificatePtr> certificates;
  for (;;) {
    CertificatePtr one(PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr), &X509_free);
    if (one == nullptr) break;
    if (X509_cmp_current_time(X509_get0_notAfter(one.get())) < 0)
      return refuse(Cat("certificate ", certificates.size() + 1, " has expired"));
    certificates.push_back(std::move(one));
  }
  ERR_clear_error();
  if (certificates.empty()) return refuse("has no certificate in PEM");
  return certificates;
}

absl::Status CheckKey(const std::string& file, X509* certificate, const std::string& certificate_file) {
  const absl::StatusOr<std::string> text = ReadRegularFile("TLS key", file);
  if (!text.ok()) return text.status();
  const KeyPtr key(PEM_read_bio_PrivateKey(BioOf(*text).get(), nullptr, NoPassphrase, nullptr),
                   &EVP_PKEY_free);
  const bool fits = key != nullptr && X509_check_private_key(certificate, key.get()) == 1;
  ERR_clear_error();
  if (key == nullptr) {
    return absl::InvalidArgumentError(
        Cat("TLS key ", file, ": has no private key in PEM, or one with a passphrase"));
  }
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Cat("TLS key ", file, ": is not the key of the certificate ", certificate_file));
}

}  // namespace

absl::Status CheckTlsFiles(const TlsFiles& files) {
  if (files.empty()) return absl::OkStatus();
  if (files.cert.empty() || files.key.empty())
    return absl::InvalidArgumentError("TLS needs both --tls-cert and --tls-key");
  const auto certificates = ReadCertificates("TLS certificate", files.cert);
  if (!certificates.ok()) return certificates.status();
  const absl::Status status = CheckKey(files.key, certificates->front().get(), files.cert);
  if (!status.ok() || files.client_ca.empty()) return status;
  return ReadCertificates("TLS client CA", files.client_ca).status();
}

std::shared_ptr<grpc::ServerCredentials> ServerCredentialsOf(const TlsFiles& files) {
  if (files.empty()) return grpc::InsecureServerCredentials();
  namespace tls = grpc::experimental;
  tls::TlsServerCredentialsOptions options(std::make_shared<tls::FileWatcherCertificateProvider>(
      files.key, files.cert, files.client_ca, kRefreshSeconds));
  options.watch_identity_key_cert_pairs();
  if (!files.client_ca.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return tls::TlsServerCredentials(options);
}

}  // namespace memcgd::server
