// `mference serve`: the OpenAI-compatible server, until a signal ends it.

#include <memory>

#include "base/file.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/interrupts.h"
#include "cli/load_flags.h"
#include "cli/model_argument.h"
#include "cli/prompt_cache_flags.h"
#include "server/http/http_server.h"
#include "server/http/origin.h"
#include "server/server.h"
#include "server/tailnet.h"

namespace mference::cli {
namespace {

constexpr uint64_t kMinBodyBytes = kMiB;
constexpr uint64_t kMaxBodyBytes = 64 * kMiB;
constexpr uint64_t kMaxKeyBytes = 4 * kKiB;
// What serving takes besides the model: request bodies as text (16 MiB) and parsed, one at a time
// (up to 400,000 values of some 50 bytes), answers that are being sent, and for constrained replies
// the vocabulary arranged by bytes (18 MB for 262,144 tokens).
constexpr uint64_t kServerBytes = 64 * kMiB;

struct ServeFlags {
  LoadFlags load;
  bool tailnet = false;
  std::filesystem::path api_key_file;
  server::ServerOptions server;
};

bool ParseBind(const std::string& text) {
  if (text == "loopback") return false;
  if (text == "tailnet") return true;
  Fail(ErrorCode::kInvalidArgument, "expected loopback or tailnet");
}

server::LogLevel ParseLogLevel(const std::string& text) {
  if (text == "error") return server::LogLevel::kError;
  if (text == "info") return server::LogLevel::kInfo;
  if (text == "debug") return server::LogLevel::kDebug;
  Fail(ErrorCode::kInvalidArgument, "expected error, info or debug");
}

bool ParseThinking(const std::string& text) {
  if (text == "off") return false;
  if (text == "auto") return true;
  Fail(ErrorCode::kInvalidArgument, "expected off or auto");
}

uint64_t ParseBodyLimit(const std::string& text) {
  const uint64_t bytes = ParseByteCount(text);
  if (bytes < kMinBodyBytes || bytes > kMaxBodyBytes) {
    Fail(ErrorCode::kInvalidArgument, "expected from 1 MiB to 64 MiB");
  }
  return bytes;
}

// The key is the file's first line.
std::string ReadApiKey(const std::filesystem::path& path) {
  std::string key = ReadTextFile(path, kMaxKeyBytes);
  key.resize(std::min(key.find_first_of("\r\n"), key.size()));
  if (key.empty()) {
    Fail(ErrorCode::kInvalidArgument, "{}: the first line should be the API key, but is empty",
         path.string());
  }
  return key;
}

const char* DescribeCache(const PromptCacheOptions& cache) {
  if (!cache.directory.empty()) return "disk";
  return cache.memory == PromptCacheOptions::Memory::kAuto ? "memory" : "off";
}

// What clients know a pinned checkpoint as; others go by the name they are installed under.
std::string DefaultModelId(const LoadedModel& loaded) {
  if (!loaded.pinned()) return ModelNameOf(loaded.directory().path());
  switch (loaded.text().family()) {
    case TextFamily::kGemma4:
      return "gemma-4-26b-a4b-it";
    case TextFamily::kQwen36:
      return "qwen3.6-35b-a3b";
    case TextFamily::kDeepseekV4:
      return "deepseek-v4-flash-2bit-dq";
    case TextFamily::kInkling:
      return "inkling-small-4bit";
    case TextFamily::kMaple:
      return "maple-preview-2bit-mlx";
  }
  return "model";
}

int Serve(const ServeFlags& flags, Console& console) {
  server::ServerOptions options = flags.server;
  if (!flags.api_key_file.empty()) options.api_key = ReadApiKey(flags.api_key_file);
  if (flags.tailnet) options.address = server::FindTailnetAddress();
  // A port that is taken shows before the model is loaded, which can take minutes.
  FileDescriptor bound = server::BindAddress(options.address, options.port);
  const std::unique_ptr<LoadedModel> loaded = LoadFromFlags(flags.load, kAutomaticContext);
  ShowLoaded(flags.load, *loaded, console);
  if (options.model_id.empty()) options.model_id = DefaultModelId(*loaded);

  const InterruptScope interrupts(InterruptMode::kServe);
  server::Server server(*loaded, options, std::move(bound));
  console.Print("mference-server ready at http://{}:{} model={} context={} prompt_cache={}\n",
                options.address, server.port(), options.model_id, loaded->session().context(),
                DescribeCache(flags.load.options.prompt_cache));
  WaitForSignal();
  server.Stop();
  return 0;
}

}  // namespace

void AddServeCommand(CommandSet& commands) {
  const auto flags = std::make_shared<ServeFlags>();
  CLI::App& command = commands.Add("serve", "Serve a model to OpenAI-compatible clients",
                                   [flags](Console& console) { return Serve(*flags, console); });
  server::ServerOptions& server = flags->server;
  flags->load.Declare(command);
  flags->load.options.other_parts = {{"server", kServerBytes}};
  AddParsed(command, "--port", "N", "TCP port, 8080 by default; 0 picks a free one",
            [&server](const std::string& text) {
              server.port = static_cast<uint16_t>(ParseInteger(text, 0, UINT16_MAX));
            });
  AddParsed(command, "--bind", "MODE",
            "loopback (default) or tailnet: the address `tailscale ip -4` gives. A Tailnet is no "
            "authentication; see --api-key-file",
            [flags](const std::string& text) { flags->tailnet = ParseBind(text); });
  AddParsed(command, "--model-id", "ID", "What clients call the model",
            [&server](const std::string& text) {
              if (text.empty()) Fail(ErrorCode::kInvalidArgument, "expected a name");
              server.model_id = text;
            });
  AddParsed(command, "--queue-limit", "N", "Requests that may wait beside the running one (4)",
            [&server](const std::string& text) {
              server.queue_limit = static_cast<size_t>(ParseInteger(text, 1, 10'000));
            });
  AddPath(command, "--api-key-file", "FILE",
          "Ask for `Authorization: Bearer KEY`, KEY being the file's first line",
          flags->api_key_file);
  AddParsed(
      command, "--cors-origin", "ORIGIN",
      "Let web pages of this origin use the server; may be repeated",
      [&server](const std::string& text) {
        server::CheckCorsOrigin(text);
        server.cors_origins.push_back(text);
      },
      /*repeatable=*/true);
  AddParsed(command, "--max-body-bytes", "SIZE", "Largest request body, 1 MiB to 64 MiB (8 MiB)",
            [&server](const std::string& text) {
              server.http.body_bytes = ParseBodyLimit(text);
              server.http.all_bodies_bytes =
                  std::max(server.http.all_bodies_bytes, server.http.body_bytes);
            });
  DeclarePromptCacheFlags(command, flags->load.options.prompt_cache);
  AddParsed(command, "--thinking", "MODE",
            "Reasoning where a request does not say: off (default) or auto",
            [&server](const std::string& text) { server.thinking = ParseThinking(text); });
  AddParsed(command, "--log-level", "LEVEL", "error, info (default) or debug",
            [&server](const std::string& text) { server.log_level = ParseLogLevel(text); });
}

}  // namespace mference::cli
