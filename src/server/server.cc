#include "server/server.h"

#include "base/sha256.h"
#include "server/api_service.h"
#include "server/http/http_server.h"

namespace mference::server {
namespace {

ServedModel Describe(LoadedModel& model, const ServerOptions& options) {
  ServedModel served;
  served.id = options.model_id;
  served.family = model.text().family();
  served.sampling_defaults = model.text().sampling_defaults();
  served.context = model.session().context();
  served.vocab_size = model.model().vocab_size();
  served.thinking = options.thinking;
  const Manifest& manifest = model.directory().manifest();
  const std::string identity =
      fmt::format("{}\n{}\n{}", manifest.model_id, manifest.source_snapshot_hash.value_or(""),
                  model.kernel_description());
  served.fingerprint = "mf-" + Sha256Hex(identity).substr(0, 8);
  return served;
}

}  // namespace

struct Server::Parts {
  Parts(LoadedModel& model, const ServerOptions& options)
      : log(options.log_level, options.log),
        service(model, Describe(model, options),
                AccessPolicy({.bound_address = options.address,
                              .cors_origins = options.cors_origins,
                              .api_key = options.api_key}),
                options.queue_limit, log),
        http(options.http, service) {
    service.count_connections = [this] { return http.connections(); };
  }

  RequestLog log;
  ApiService service;
  HttpServer http;
};

Server::Server(LoadedModel& model, const ServerOptions& options)
    : Server(model, options, BindAddress(options.address, options.port)) {}

Server::Server(LoadedModel& model, const ServerOptions& options, FileDescriptor bound)
    : parts_(std::make_unique<Parts>(model, options)) {
  port_ = parts_->http.Start(std::move(bound));
}

Server::~Server() { Stop(std::chrono::milliseconds(0)); }

void Server::Stop(std::chrono::milliseconds grace) {
  parts_->http.StopAccepting();
  parts_->service.Shutdown();
  parts_->http.Stop(grace);
}

}  // namespace mference::server
