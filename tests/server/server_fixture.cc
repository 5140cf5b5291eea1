#include "server/server_fixture.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/units.h"
#include "engine/golden_model.h"

namespace mference::testing_support {

void Gate::Shut() {
  const std::lock_guard lock(mutex_);
  shut_ = true;
}

void Gate::Open() {
  const std::lock_guard lock(mutex_);
  shut_ = false;
  changed_.notify_all();
}

void Gate::WaitUntilHeld() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return held_; });
}

void Gate::Pass() {
  std::unique_lock lock(mutex_);
  ++passes_;
  if (!shut_) return;
  held_ = true;
  changed_.notify_all();
  changed_.wait(lock, [this] { return !shut_; });
  held_ = false;
}

Gate& ServerTest::gate() {
  static Gate gate;
  return gate;
}

int Gate::passes() {
  const std::lock_guard lock(mutex_);
  return passes_;
}

LoadedModel& ServerTest::DemoModel() {
  static const std::unique_ptr<LoadedModel> model = [] {
    LoadOptions options;
    options.path = InstalledSnapshot(MFERENCE_DEMO_SNAPSHOT);
    options.memory_budget_bytes = kGiB;
    options.context = kContext;
    options.threads = 2;
    options.on_open = [](int, std::span<const int32_t>) { gate().Pass(); };
    return LoadedModel::Load(options);
  }();
  return *model;
}

void ServerTest::Start(server::ServerOptions options) {
  server_.reset();
  DemoModel().session().Reset();
  options.address = "127.0.0.1";
  options.port = 0;
  options.model_id = "demo";
  options.log = [this](std::string_view line) {
    const std::lock_guard lock(log_mutex_);
    log_.emplace_back(line);
  };
  server_ = std::make_unique<server::Server>(DemoModel(), options);
}

void ServerTest::TearDown() {
  gate().Open();
  server_.reset();
}

std::vector<std::string> ServerTest::log() const {
  const std::lock_guard lock(log_mutex_);
  return log_;
}

bool ServerTest::WaitForLog(const std::string& text) const {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < end) {
    const std::vector<std::string> lines = log();
    if (std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
          return line.find(text) != std::string::npos;
        })) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

Json ServerTest::ChatBody(const std::string& text, int max_tokens) {
  return {{"model", "demo"},
          {"temperature", 0},
          {"max_tokens", max_tokens},
          {"messages", {{{"role", "user"}, {"content", text}}}}};
}

std::string ServerTest::Content(const HttpReply& reply) {
  return reply.json().at("choices").at(0).at("message").at("content");
}

}  // namespace mference::testing_support
