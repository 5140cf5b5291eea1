#include "install/test_certificates.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>
#include <stdexcept>

namespace mference::testing {
namespace {

template <auto Function>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    Function(object);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Deleter<X509_free>>;
using Bio = std::unique_ptr<BIO, Deleter<BIO_free_all>>;

void Require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

Key MakeKey() {
  Key key(EVP_EC_gen("P-256"));
  Require(key != nullptr, "no key");
  return key;
}

void AddExtension(X509* certificate, X509* issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, Deleter<X509_EXTENSION_free>> extension(
      X509V3_EXT_conf_nid(nullptr, &context, nid, value));
  Require(extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1, value);
}

Certificate MakeCertificate(const char* name, int64_t serial, EVP_PKEY* key, X509* issuer,
                            EVP_PKEY* issuer_key) {
  constexpr long kDay = 86400;
  Certificate certificate(X509_new());
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set_int64(X509_get_serialNumber(certificate.get()), serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -kDay);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), kDay);
  X509_set_pubkey(certificate.get(), key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
  X509* signer = issuer != nullptr ? issuer : certificate.get();
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(signer));
  AddExtension(certificate.get(), signer, NID_basic_constraints,
               issuer == nullptr ? "critical,CA:TRUE" : "CA:FALSE");
  if (issuer != nullptr) {
    AddExtension(certificate.get(), signer, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
  }
  Require(X509_sign(certificate.get(), issuer_key, EVP_sha256()) > 0, "cannot sign");
  return certificate;
}

std::string Text(const Bio& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<size_t>(size)};
}

std::string ToPem(X509* certificate) {
  const Bio bio(BIO_new(BIO_s_mem()));
  Require(PEM_write_bio_X509(bio.get(), certificate) == 1, "no PEM");
  return Text(bio);
}

std::string ToPem(EVP_PKEY* key) {
  const Bio bio(BIO_new(BIO_s_mem()));
  Require(PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1,
          "no PEM");
  return Text(bio);
}

TestCertificates Make() {
  const Key authority_key = MakeKey();
  const Certificate authority =
      MakeCertificate("Test Authority", 1, authority_key.get(), nullptr, authority_key.get());
  const Key server_key = MakeKey();
  const Certificate server =
      MakeCertificate("localhost", 2, server_key.get(), authority.get(), authority_key.get());
  return {ToPem(authority.get()), ToPem(server.get()), ToPem(server_key.get())};
}

}  // namespace

const TestCertificates& Certificates() {
  static const TestCertificates certificates = Make();
  return certificates;
}

}  // namespace mference::testing
