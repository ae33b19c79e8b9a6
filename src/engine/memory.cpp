#include "rhapsode/memory.h"

#include <algorithm>
#include <charconv>

#include "base/iso_time.h"
#include "base/sha256.h"
#include "base/system.h"
#include "engine/memory_impl.h"
#include "engine/routing_file.h"
#include "engine/runner_options.h"
#include "model/file_hash.h"
#include "recall/links.h"
#include "store/conversation_log.h"

namespace rhapsode {

namespace {

// Everything that changes a passage's KV but is not a setting; raised when the encoder changes.
constexpr char kEncoderVersion[] = "1";
constexpr int kMostDiskThreads = 16;  // that read KV: more make neither a disk nor its cache faster
// The model that is taking a memory over, until all of it is encoded again.
constexpr char kAdoptingSetting[] = "adopting";
constexpr char kInstruction[] =
    "You answer the user's question from the documents the user gives, and from nothing else. "
    "Answer with the fact asked for, in a few words or one short sentence. "
    "If the documents do not hold the answer, reply: Not in the documents.";

// A hash over tagged, length-prefixed parts.
class Fingerprint {
 public:
  void add(std::string_view tag, std::string_view value) {
    text_ += fmt::format("{}:{}:{};", tag, value.size(), value);
  }
  Result<std::string> finish() const { return sha256(std::as_bytes(std::span(text_.data(), text_.size()))); }

 private:
  std::string text_;
};

std::string numbers(std::span<const int32_t> values) {
  std::string text;
  for (int32_t value : values) text += fmt::format("{} ", value);
  return text;
}

const char* numerics_class(WeightFormat format) {
  switch (format) {
    case WeightFormat::kShipped:
      return "shipped";
    case WeightFormat::kBF16:
      return "bf16";
    case WeightFormat::kMixed:
      return "mixed";
  }
  return "shipped";
}

// A setting's number; 0 for one that is absent or damaged, as the catalog itself reads it.
uint64_t bytes_of(const std::optional<std::string>& setting) {
  uint64_t bytes = 0;
  if (setting) std::from_chars(setting->data(), setting->data() + setting->size(), bytes);
  return bytes;
}

Result<kernels::KvType> stored_type(std::string_view name, kernels::KvType pool) {
  for (kernels::KvType type :
       {kernels::KvType::kF32, kernels::KvType::kF16, kernels::KvType::kBF16, kernels::KvType::kI8}) {
    if (name != to_string(type)) continue;
    if (type == pool || type == kernels::KvType::kI8) return type;
    return make_error(ErrorKind::kInvalidArgument,
                      "this memory stores KV as {}, which pages of {} cannot take: run with --kv-type {}",
                      name, to_string(pool), name);
  }
  return make_error(ErrorKind::kCorrupt, "the memory's settings name an unknown KV type '{}'", name);
}

}  // namespace

std::string built_in_instruction() {
  return kInstruction;
}

Result<recall::PromptFrame> make_frame(const engine::ModelRunner& runner, const std::string& instruction) {
  const auto tokenizer = runner.shared_tokenizer();
  std::shared_ptr<const text::ChatTemplate> chat;
  if (tokenizer->chat_template()) {
    RH_TRY(chat, text::ChatTemplate::load(*tokenizer));
  }
  return recall::PromptFrame::make(tokenizer, chat, instruction);
}

Memory::Impl::~Impl() {
  if (engine) engine->scheduler->set_reclaimer(this, nullptr);
}

Status Memory::Impl::adopt_settings() {
  Fingerprint identity;
  const EngineOptions& engine_options = engine->options;
  const auto home = engine_options.cache_folder.empty() ? home_folder() : engine_options.cache_folder;
  RH_TRY(model_sha256, model::known_hash(engine_options.model, home));
  identity.add("model", model_sha256);
  for (const AdapterOptions& adapter : engine_options.adapters) {
    RH_TRY(const std::string hash, model::known_hash(adapter.path, home));
    identity.add("adapter", hash);
    identity.add("scale", fmt::format("{:a}", adapter.scale));
  }
  RH_TRY(model_id, identity.finish());

  RH_TRY(const bool adopts, check_model());
  RH_TRY(const std::optional<std::string> kept_instruction, catalog->setting("instruction"));
  const std::string instruction =
      kept_instruction.value_or(options.instruction.empty() ? kInstruction : options.instruction);
  RH_TRY(index::Whitening found,
         engine::find_whitening(options.whitening, model_sha256, engine->runner->architecture(), home));
  whitening = std::make_unique<index::Whitening>(std::move(found));
  RH_TRY(evidence, engine::find_evidence_model(options.ranker, home));
  RH_TRY(const std::optional<std::string> kept_whitening, catalog->setting("whitening"));
  if (kept_whitening && *kept_whitening != whitening->id() && !adopts) {
    return make_error(ErrorKind::kInvalidArgument,
                      "the memory {} was made with another routing file ({}): give it with --routing",
                      options.folder.string(), kept_whitening->substr(0, 12));
  }
  const kernels::KvType pool = engine->runner->kv_shape().type;
  RH_TRY(const std::optional<std::string> kept_type, catalog->setting("stored_kv"));
  const kernels::KvType asked = options.stored_kv ? engine::kv_type_of(*options.stored_kv) : pool;
  RH_TRY(stored_kv, stored_type(kept_type.value_or(to_string(asked)), pool));
  RH_TRY(const std::optional<std::string> kept_cap, catalog->setting(store::kKvCapSetting));
  disk_cap_bytes = options.disk_cap_bytes.value_or(bytes_of(kept_cap));
  RH_TRY_STATUS(make_parts(instruction));

  std::map<std::string, std::string> settings;
  if (!kept_instruction) settings["created"] = format_iso_time(wall_clock_ms());
  settings["instruction"] = instruction;
  settings["stored_kv"] = to_string(stored_kv);
  settings["model_path"] = std::filesystem::absolute(engine_options.model).string();
  settings[std::string(store::kKvCapSetting)] = std::to_string(disk_cap_bytes);
  settings[std::string(store::kFingerprintSetting)] = kv_fingerprint;
  if (options.read_only) return {};
  if (adopts) settings[kAdoptingSetting] = model_id;
  RH_TRY_STATUS(catalog->set_settings(settings));
  if (adopts) RH_TRY_STATUS(encode_again());
  return catalog->set_settings({{"model_id", model_id},
                                {"model_name", engine->runner->architecture().title},
                                {"whitening", whitening->id()},
                                {kAdoptingSetting, ""}});
}

// True when the engine's model takes the memory over from another one.
Result<bool> Memory::Impl::check_model() {
  RH_TRY(const std::optional<std::string> known, catalog->setting("model_id"));
  RH_TRY(const std::optional<std::string> adopting, catalog->setting(kAdoptingSetting));
  const bool unfinished = adopting && !adopting->empty();
  if (!known || (*known == model_id && !unfinished)) return false;
  if (options.reencode && !options.read_only) return true;
  RH_TRY(const std::optional<std::string> name, catalog->setting("model_name"));
  RH_TRY(const store::CatalogStats stats, catalog->stats(""));
  if (unfinished) {
    return make_error(
        ErrorKind::kInvalidArgument,
        "encoding the memory {} again for another model was interrupted: finish it with --reencode",
        options.folder.string());
  }
  return make_error(
      ErrorKind::kInvalidArgument,
      "the memory {} was made with another model ({}); its {} tokens would have to be encoded again "
      "for {}: use that model, another memory folder, or --reencode",
      options.folder.string(), name.value_or("unknown"), stats.tokens, engine->runner->architecture().title);
}

Status Memory::Impl::encode_again() {
  RH_TRY(const std::vector<store::SourceRow> rows, catalog->sources(store::Selection::stored()));
  const auto maker = ingester();
  for (const store::SourceRow& row : rows) RH_TRY_STATUS(maker->rebuild(row));
  return sync_index();
}

Status Memory::Impl::make_parts(const std::string& instruction) {
  RH_TRY(recall::PromptFrame made, make_frame(*engine->runner, instruction));
  frame = std::make_unique<recall::PromptFrame>(std::move(made));
  tokenizer = std::make_unique<recall::PassageTokenizer>(*frame);
  Fingerprint kv;
  kv.add("encoder", kEncoderVersion);
  kv.add("model", model_id);
  kv.add("prefix", numbers(frame->prefix()));
  kv.add("pool", to_string(engine->runner->kv_shape().type));
  kv.add("stored", to_string(stored_kv));
  const std::string_view rounding = engine->runner->backend().numerics();
  kv.add("numerics", rounding.empty() ? numerics_class(engine->options.weights) : rounding);
  RH_TRY(kv_fingerprint, kv.finish());
  encoder = std::make_unique<recall::Encoder>(*passes, *frame);
  host_threads = engine->options.threads > 0 ? engine->options.threads : usable_cores();
  RH_TRY(finder, make_finder(whitening->dimensions(), host_threads));
  router = std::make_unique<recall::Router>(*encoder, *frame, *whitening, *finder);
  tier = std::make_unique<recall::KvTier>(
      *passes, *encoder, kv_fingerprint,
      recall::KvTierOptions{stored_kv, engine->ram_pool.get(), std::min(host_threads, kMostDiskThreads)});
  // At most half of the engine's pages: the rest is for what requests compute themselves.
  tier->set_cap(engine->pool->stats().cap_bytes / 2);
  engine->scheduler->set_reclaimer(this, [this](int blocks) { return tier->reclaim(blocks); });
  return {};
}

Status Memory::Impl::set_up() {
  store::CatalogOptions catalog_options;
  catalog_options.folder = options.folder;
  catalog_options.create = options.create;
  catalog_options.read_only = options.read_only;
  RH_TRY(catalog, store::Catalog::open(catalog_options));
  RH_TRY_STATUS(adopt_settings());
  return options.read_only ? Status{} : recall::sync_mentions(*catalog);
}

bool Memory::Impl::with_writer(const std::function<Status(store::Catalog&)>& change) {
  if (!options.read_only) return change(*catalog).ok();
  store::CatalogOptions catalog_options;
  catalog_options.folder = options.folder;
  auto writer = store::Catalog::open(catalog_options);
  if (!writer.ok() || !change(**writer).ok()) return false;
  writer->reset();
  return catalog->refresh().ok();
}

recall::KvUpkeep Memory::Impl::upkeep() {
  recall::KvUpkeep upkeep;
  upkeep.keep = [this](std::span<const store::KvRecord> made) {
    uint64_t bytes = 0;
    for (const store::KvRecord& record : made) bytes += record.kv.size();
    with_writer([&](store::Catalog& writer) -> Status {
      RH_TRY(const store::CatalogStats stats, writer.stats(kv_fingerprint));
      if (disk_cap_bytes > 0 && stats.kv_bytes + bytes > disk_cap_bytes) {
        RH_TRY_STATUS(writer.evict_kv(kv_fingerprint, stats.kv_bytes + bytes - disk_cap_bytes));
      }
      return writer.put_kv(kv_fingerprint, made);
    });
  };
  upkeep.quarantine = [this](int64_t passage) {
    with_writer([&](store::Catalog& writer) { return writer.quarantine(passage); });
  };
  return upkeep;
}

std::unique_ptr<recall::Ingester> Memory::Impl::ingester() {
  const int threads = engine->options.threads > 0 ? engine->options.threads : usable_cores();
  return std::make_unique<recall::Ingester>(
      *catalog, *passes, *encoder, *frame, *whitening,
      recall::IngestSetting{kv_fingerprint, stored_kv, disk_cap_bytes, threads});
}

Result<store::Selection> Memory::Impl::selection(const SourceFilter& filter) const {
  if (!filter.as_of.empty()) RH_TRY_STATUS(parse_iso_time(filter.as_of));
  store::Selection selection;
  selection.sources = filter.sources;
  selection.tags = filter.tags;
  selection.as_of = filter.as_of;
  selection.user = filter.user;
  selection.all_users = filter.all_users;
  selection.history = filter.history;
  return selection;
}

Result<store::Selection> Memory::Impl::reading_selection(const SourceFilter& filter) const {
  RH_TRY(store::Selection chosen, selection(filter));
  RH_TRY(const bool conversations, store::ConversationLog(*catalog).has_others(0));
  if (conversations) chosen.conversations.emplace();
  return chosen;
}

Status Memory::Impl::needs_all_users(bool all_users, std::string_view what) const {
  if (all_users) return {};
  RH_TRY(const bool users, catalog->has_users());
  if (!users) return {};
  return make_error(ErrorKind::kPermission,
                    "the memory {} holds users' own sources, and {} is about all of it: say --all-users",
                    options.folder.string(), what);
}

Memory::Memory(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Memory::~Memory() = default;

Result<std::unique_ptr<Memory>> Memory::open(Engine& engine, const MemoryOptions& options) {
  auto impl = std::make_unique<Impl>(engine.impl_.get(), options);
  RH_TRY_STATUS(impl->set_up());
  return std::unique_ptr<Memory>(new Memory(std::move(impl)));
}

Result<std::unique_ptr<Memory>> Memory::look(const MemoryOptions& options) {
  auto impl = std::make_unique<Impl>(nullptr, options);
  impl->options.read_only = true;
  impl->options.create = false;
  store::CatalogOptions catalog_options;
  catalog_options.folder = options.folder;
  catalog_options.read_only = true;
  RH_TRY(impl->catalog, store::Catalog::open(catalog_options));
  RH_TRY(const std::optional<std::string> fingerprint, impl->catalog->setting(store::kFingerprintSetting));
  impl->kv_fingerprint = fingerprint.value_or("");
  RH_TRY(const std::optional<std::string> cap, impl->catalog->setting(store::kKvCapSetting));
  impl->disk_cap_bytes = bytes_of(cap);
  RH_TRY(impl->finder, impl->make_finder(0, 1));
  return std::unique_ptr<Memory>(new Memory(std::move(impl)));
}

Status Memory::Impl::needs_model() const {
  if (engine) return {};
  return make_error(ErrorKind::kInvalidArgument, "the memory {} is open without its model",
                    options.folder.string());
}

const std::filesystem::path& Memory::folder() const {
  return impl_->options.folder;
}

Result<AddPlan> Memory::plan(const AddOptions& options) {
  const engine::BesideAnswers inside(impl_->gate);
  RH_TRY_STATUS(impl_->needs_model());
  RH_TRY(const AddPlan plan, impl_->ingester()->plan(options));
  impl_->planned_tokens = plan.tokens;
  return plan;
}

Result<AddReport> Memory::add(const AddOptions& options) {
  const std::lock_guard lock(impl_->gate);
  RH_TRY_STATUS(impl_->needs_model());
  if (impl_->options.read_only) {
    return make_error(ErrorKind::kInvalidArgument, "the memory {} is open for reading only",
                      impl_->options.folder.string());
  }
  const uint64_t expected = std::exchange(impl_->planned_tokens, 0);
  RH_TRY(AddReport report, impl_->ingester()->add(options, expected));
  RH_TRY_STATUS(impl_->sync_index());
  return report;
}

Result<MemoryIdentity> identify_memory(const std::filesystem::path& folder) {
  store::CatalogOptions options;
  options.folder = folder;
  options.read_only = true;
  RH_TRY(const std::unique_ptr<store::Catalog> catalog, store::Catalog::open(options));
  MemoryIdentity identity;
  identity.folder = folder;
  RH_TRY(const std::optional<std::string> name, catalog->setting("model_name"));
  RH_TRY(const std::optional<std::string> path, catalog->setting("model_path"));
  RH_TRY(const std::optional<std::string> fingerprint, catalog->setting(store::kFingerprintSetting));
  identity.model_name = name.value_or("");
  identity.model_path = path.value_or("");
  identity.fingerprint = fingerprint.value_or("");
  return identity;
}

}  // namespace rhapsode
