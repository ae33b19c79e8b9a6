// `rhapsode pull`: a model from the catalogue, a URL or a path into the home folder.
#include <map>

#include "base/clock.h"
#include "base/system.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/quantity.h"
#include "cli/table.h"
#include "cli/transfer_progress.h"
#include "model/catalogue.h"
#include "model/pull.h"

namespace rhapsode::cli {
namespace {

const char* words_of(model::PullStage stage, bool from_path) {
  switch (stage) {
    case model::PullStage::kWaiting:
      return "waiting for another pull";
    case model::PullStage::kDownloading:
      return from_path ? "copying" : "downloading";
    case model::PullStage::kVerifying:
      return "verifying";
  }
  return "";
}

// A model of the catalogue, of the home folder, or of both.
struct Listed {
  model::CatalogueEntry entry;
  std::string path;  // empty: not pulled
};

Result<std::map<std::string, Listed>> list_models(const model::Catalogue& catalogue) {
  std::map<std::string, Listed> models;
  for (const model::CatalogueEntry& entry : catalogue.entries()) models[entry.name].entry = entry;
  for (const model::LocalModel& local : model::local_models()) {
    Listed& listed = models[local.name];
    listed.path = local.path.string();
    listed.entry.name = local.name;
    listed.entry.bytes = local.bytes;
  }
  return models;
}

Result<int> run_list(Invocation& invocation) {
  RH_TRY(const model::Catalogue catalogue, model::Catalogue::load(home_folder()));
  RH_TRY(const auto models, list_models(catalogue));
  if (invocation.settings.json) {
    Json list = Json::array();
    for (const auto& [name, listed] : models) {
      const model::CatalogueEntry& entry = listed.entry;
      list.push_back({{"name", name},
                      {"title", entry.title},
                      {"architecture", entry.architecture},
                      {"license", entry.license},
                      {"license_url", entry.license_url},
                      {"parameters", entry.parameters},
                      {"kv_bytes_per_token", entry.kv_bytes_per_token},
                      {"bytes", entry.bytes},
                      {"sha256", entry.sha256},
                      {"path", listed.path.empty() ? Json(nullptr) : Json(listed.path)}});
    }
    invocation.terminal.print(to_text({{"default", catalogue.default_model()}, {"models", std::move(list)}}));
    return kExitOk;
  }
  Table table({{"model"}, {"size", true}, {"KV a token", true}, {"parameters", true}, {"licence"}, {"here"}});
  const auto known = [](uint64_t number, const std::string& text) {
    return number == 0 ? std::string("?") : text;
  };
  for (const auto& [name, listed] : models) {
    const model::CatalogueEntry& entry = listed.entry;
    table.add({name == catalogue.default_model() ? fmt::format("{} (default)", name) : name,
               known(entry.bytes, show_bytes(entry.bytes)),
               known(entry.kv_bytes_per_token, fmt::format("{} B", entry.kv_bytes_per_token)),
               known(entry.parameters, show_count(entry.parameters)),
               entry.license.empty() ? "?" : entry.license, listed.path.empty() ? "no" : "yes"});
  }
  invocation.terminal.print(table.render(invocation.terminal));
  return kExitOk;
}

void print_pulled(const model::PulledModel& pulled, Terminal& terminal) {
  terminal.print(fmt::format("{} {} at {} ({})\n", pulled.name,
                             pulled.already_there ? "is already" : "is ready", pulled.path.string(),
                             show_bytes(pulled.bytes)));
  if (!pulled.pinned && !pulled.sha256.empty()) {
    terminal.print(fmt::format("Its SHA-256 was not known beforehand; compare it with the publisher's: {}\n",
                               pulled.sha256));
  }
}

}  // namespace

Result<int> run_pull(Invocation& invocation) {
  const Settings& settings = invocation.settings;
  Terminal& terminal = invocation.terminal;
  if (settings.pull.list) return run_list(invocation);

  const std::string what = invocation.arguments.empty() ? "" : invocation.arguments.front();
  const bool from_path = what.find('/') != std::string::npos && what.find("://") == std::string::npos;
  RH_TRY(const InterruptGuard interrupts, InterruptGuard::install());
  TransferProgress progress(terminal,
                            what.empty() ? settings.model : what.substr(what.find_last_of('/') + 1));
  model::PullOptions options;
  options.offline = settings.pull.offline;
  options.index_url = settings.pull.index_url;
  options.on_progress = [&](const model::PullProgress& now) {
    const bool in_tenths = now.stage == model::PullStage::kDownloading;
    progress.update({words_of(now.stage, from_path), now.done_bytes, now.total_bytes, in_tenths},
                    static_cast<double>(now_ns()) * 1e-9);
    return interrupts.signal_number() == 0;
  };
  const auto pulled = model::pull(what, options);
  terminal.clear_status();
  if (interrupts.signal_number() != 0 && !pulled.ok()) {
    terminal.print_err("stopped; the same command goes on from here\n");
    return 128 + interrupts.signal_number();
  }
  if (!pulled.ok()) return pulled.error();
  if (settings.json) {
    terminal.print(to_text({{"name", pulled->name},
                            {"path", pulled->path.string()},
                            {"bytes", pulled->bytes},
                            {"sha256", pulled->sha256},
                            {"source", pulled->source},
                            {"already_there", pulled->already_there},
                            {"pinned", pulled->pinned}}));
  } else {
    print_pulled(*pulled, terminal);
  }
  return kExitOk;
}

}  // namespace rhapsode::cli
