// `mference list` and `remove`: the models on this machine.

#include <algorithm>

#include "base/units.h"
#include "cli/commands.h"
#include "cli/input.h"
#include "cli/model_argument.h"
#include "install/install_paths.h"
#include "install/registry.h"
#include "model/catalogue.h"

namespace mference::cli {
namespace {

std::string StatusOf(const InstalledModel& model) {
  if (!model.problem.empty()) return fmt::format("damaged: {}", model.problem);
  return model.pinned ? "ready" : "ready, unpinned";
}

std::string StatusOf(const UnfinishedModel& model) {
  return model.total_bytes == 0
             ? "unfinished"
             : fmt::format("unfinished, {}% done", model.completed_bytes * 100 / model.total_bytes);
}

int ListInstalled(bool json, Console& console) {
  const ModelListing listing = ListModels(ModelsDirectory());
  Json lines = Json::array();
  Table table({"NAME", "FAMILY", "SIZE", "STATUS", "PATH"});
  table.AlignRight(2);
  for (const InstalledModel& model : listing.installed) {
    const bool usable = model.problem.empty();
    const char* family = usable ? FamilyName(model.family) : "";
    table.Add({model.name, family, usable ? FormatByteCount(model.bytes) : "", StatusOf(model),
               model.directory.string()});
    lines.push_back({{"name", model.name},
                     {"family", family},
                     {"model_id", model.model_id},
                     {"pinned", model.pinned},
                     {"bytes", model.bytes},
                     {"status", usable ? "ready" : "damaged"},
                     {"problem", model.problem},
                     {"path", model.directory.string()}});
  }
  for (const UnfinishedModel& model : listing.unfinished) {
    table.Add({model.name, "", FormatByteCount(model.total_bytes), StatusOf(model), ""});
    lines.push_back({{"name", model.name},
                     {"status", "unfinished"},
                     {"repository", model.repository},
                     {"completed_bytes", model.completed_bytes},
                     {"total_bytes", model.total_bytes}});
  }
  if (json) {
    console.Print("{}\n", lines.dump(2));
  } else if (lines.empty()) {
    console.Note("no model is installed in {}; see `mference list --available`\n",
                 ModelsDirectory().string());
  } else {
    console.Write(table.Format());
  }
  return 0;
}

int ListAvailable(bool json, Console& console) {
  const ModelListing listing = ListModels(ModelsDirectory());
  Json lines = Json::array();
  Table table({"NAME", "MODEL", "DOWNLOAD", "ON DISK", "MEMORY", "LICENCE", ""});
  for (const size_t column : {2, 3, 4}) table.AlignRight(column);
  for (const PinnedSource& source : PinnedSources()) {
    const bool here = std::any_of(
        listing.installed.begin(), listing.installed.end(), [&](const InstalledModel& model) {
          return model.problem.empty() && model.model_id == source.model_id;
        });
    table.Add({std::string(source.name), std::string(source.display_name),
               FormatByteCount(source.download_bytes), FormatByteCount(source.installed_bytes),
               FormatByteCount(source.memory_bytes()), std::string(source.licence),
               here ? "installed" : ""});
    lines.push_back({{"name", source.name},
                     {"model", source.display_name},
                     {"repository", source.repository},
                     {"revision", source.revision},
                     {"download_bytes", source.download_bytes},
                     {"installed_bytes", source.installed_bytes},
                     {"memory_bytes", source.memory_bytes()},
                     {"licence", source.licence},
                     {"installed", here}});
  }
  console.Write(json ? lines.dump(2) + "\n" : table.Format());
  return 0;
}

struct RemoveFlags {
  std::string model;
  bool yes = false;
  bool json = false;
};

bool Confirm(const std::filesystem::path& path, Console& console) {
  if (!InputIsTerminal()) {
    throw UsageError(
        fmt::format("removing {} needs --yes when nobody can be asked", path.string()));
  }
  console.Note("remove {}? [y/N] ", path.string());
  LineReader lines;
  std::string answer;
  return lines.Next(&answer) == LineStatus::kLine &&
         (Trimmed(answer) == "y" || Trimmed(answer) == "yes");
}

int Remove(const RemoveFlags& flags, Console& console) {
  Require(flags.model, "MODEL");
  const std::filesystem::path path = ResolveModelPath(flags.model);
  if (!flags.yes && !Confirm(path, console)) {
    console.WriteError("nothing was removed\n");
    return 1;
  }
  RemoveModel(path);
  if (flags.json) {
    console.Print("{}\n", Json{{"removed", path.string()}}.dump());
  } else {
    console.Print("Removed {}\n", path.string());
  }
  return 0;
}

}  // namespace

void AddListCommand(CommandSet& commands) {
  struct Flags {
    bool available = false;
    bool json = false;
  };
  const auto flags = std::make_shared<Flags>();
  CLI::App& command = commands.Add("list", "Show the installed models", [flags](Console& console) {
    return flags->available ? ListAvailable(flags->json, console)
                            : ListInstalled(flags->json, console);
  });
  AddSwitch(command, "--available", "What can be installed, with sizes and licences",
            flags->available);
  AddSwitch(command, "--json", "A JSON array", flags->json);
}

void AddRemoveCommand(CommandSet& commands) {
  const auto flags = std::make_shared<RemoveFlags>();
  CLI::App& command = commands.Add("remove", "Delete an installed model",
                                   [flags](Console& console) { return Remove(*flags, console); });
  AddPositional(command, "MODEL", kModelHelp, flags->model);
  AddSwitch(command, "-y,--yes", "Do not ask", flags->yes);
  AddSwitch(command, "--json", "The outcome as JSON", flags->json);
}

}  // namespace mference::cli
