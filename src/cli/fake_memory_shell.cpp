// The stand-in memory (fake_memory.cpp): what it holds, facts, and housekeeping.
#include "cli/fake_memory_impl.h"

namespace rhapsode {

Result<std::vector<SourceInfo>> Memory::list(const SourceFilter& filter) {
  RH_TRY_STATUS(impl_->refused(filter.user, filter.all_users));
  std::vector<SourceInfo> list;
  for (const auto& [name, source] : impl_->sources().items()) {
    if (impl_->selected(name, source, filter)) list.push_back(impl_->info(name));
  }
  return list;
}

Result<SourceDetail> Memory::show(const std::string& source, const SourceFilter& filter) {
  RH_TRY_STATUS(text(source, filter));
  SourceDetail detail;
  detail.info = impl_->info(source_name(source));
  for (int version = 1; version <= detail.info.versions; ++version) {
    const bool current = version == detail.info.versions;
    detail.versions.push_back({version, kTime, current ? "" : kTime, detail.info.event_time,
                               detail.info.bytes, std::string(64, 'a')});
  }
  for (const FoundPassage& found :
       impl_->passages({{source_name(source)}, {}, "", filter.user, filter.all_users})) {
    detail.passages.push_back(found.passage);
  }
  return detail;
}

Result<std::string> Memory::text(const std::string& source, const SourceFilter& filter) {
  RH_TRY_STATUS(impl_->refused(filter.user, filter.all_users));
  const std::string name = source_name(source);
  const bool there = impl_->sources().contains(name) && impl_->selected(name, impl_->sources()[name], filter);
  if (!there) return make_error(ErrorKind::kNotFound, "no source {}", name);
  return impl_->sources()[name]["text"].get<std::string>();
}

Result<FactReport> Memory::record(std::span<const FactStatement> statements) {
  FactReport report;
  Json& facts = impl_->json["facts"];
  for (const FactStatement& statement : statements) {
    for (Json& fact : facts) {
      const bool same = fact["user"] == statement.user && fact["subject"] == statement.subject &&
                        fact["attribute"] == statement.attribute;
      if (!same || !fact["current"].get<bool>()) continue;
      fact["current"] = false;
      ++report.superseded;
    }
    facts.push_back({{"user", statement.user},
                     {"subject", statement.subject},
                     {"attribute", statement.attribute},
                     {"value", statement.value},
                     {"action", static_cast<int>(statement.action)},
                     {"told", statement.told},
                     {"speaker", statement.speaker},
                     {"current", statement.action != FactAction::kRetracted}});
    ++report.recorded;
  }
  impl_->save();
  SourceFilter all;
  all.all_users = all.history = true;
  RH_TRY(std::vector<FactInfo> stored, this->facts(all));
  report.facts.assign(stored.end() - report.recorded, stored.end());
  return report;
}

Result<std::vector<FactInfo>> Memory::facts(const SourceFilter& filter) {
  RH_TRY_STATUS(impl_->refused(filter.user, filter.all_users));
  std::vector<FactInfo> facts;
  for (const Json& fact : impl_->json.value("facts", Json::array())) {
    FactInfo info;
    info.user = fact["user"];
    info.current = fact["current"];
    const bool seen = info.user.empty() || info.user == filter.user || filter.all_users;
    if (!seen || (!info.current && !filter.history)) continue;
    info.subject = fact["subject"];
    info.attribute = fact["attribute"];
    info.value = fact["value"];
    info.told = info.event_time = fact["told"];
    info.speaker = fact["speaker"];
    info.action = static_cast<FactAction>(fact["action"].get<int>());
    info.source = "facts/" + info.subject + "/" + info.attribute;
    info.version = info.action == FactAction::kRetracted ? 0 : 1;
    info.valid_from = info.version == 0 ? "" : kTime;
    info.valid_to = info.current || info.version == 0 ? "" : kTime;
    info.made_by = "rule";
    facts.push_back(std::move(info));
  }
  return facts;
}

Result<ForgetReport> Memory::forget(const ForgetOptions& options) {
  RH_TRY_STATUS(impl_->refused(options.user, options.all_users));
  ForgetReport report;
  for (const auto& [name, source] : impl_->sources().items()) {
    const Json& tags = source["tags"];
    const bool named =
        std::any_of(options.sources.begin(), options.sources.end(),
                    [&, &name = name](const auto& given) { return is_at_or_below(name, given); });
    const bool tagged = std::any_of(options.tags.begin(), options.tags.end(), [&](const auto& tag) {
      return std::find(tags.begin(), tags.end(), tag) != tags.end();
    });
    if (named || tagged) report.sources.push_back(name);
  }
  if (options.confirm && !options.confirm(report.sources)) return ForgetReport{};
  RH_TRY(report.derived, derived(options));
  for (const std::string& name : report.sources) {
    report.passages += impl_->info(name).passages;
    report.bytes += impl_->info(name).bytes;
    impl_->sources().erase(name);
  }
  impl_->save();
  return report;
}

Result<MemoryStats> Memory::stats(bool all_users) {
  RH_TRY_STATUS(impl_->refused("", all_users));
  MemoryStats stats;
  stats.model = impl_->json["model_name"];
  stats.fingerprint = "f1e2d3";
  stats.kv_cap_bytes = impl_->json.value("cap", uint64_t{0});
  for (const auto& [name, source] : impl_->sources().items()) {
    const SourceInfo info = impl_->info(name);
    ++stats.sources;
    stats.versions += info.versions;
    ++stats.contents;
    stats.passages += info.passages;
    stats.tokens += info.tokens;
    stats.text_bytes += info.bytes;
  }
  return stats;
}

Result<VerifyReport> Memory::verify(const VerifyOptions& options) {
  RH_TRY_STATUS(impl_->refused("", options.all_users));
  VerifyReport report;
  for (const auto& [name, source] : impl_->sources().items()) {
    ++report.texts_checked;
    if (source["text"].get<std::string>().find("DAMAGED") != std::string::npos) {
      report.problems.push_back({name, "the checksum of its text is wrong"});
    }
  }
  report.extents_checked = report.texts_checked;
  report.passages_encoded = std::max(1, static_cast<int>(options.sample * report.texts_checked));
  return report;
}

Status Memory::export_to(const fs::path& file, bool all_users) {
  RH_TRY_STATUS(impl_->refused("", all_users));
  std::ofstream out(file, std::ios::binary);
  out << impl_->json.dump();
  if (!out.flush()) return make_error(ErrorKind::kIo, "cannot write {}", file.string());
  return {};
}

Result<RoutingReport> Memory::make_routing(Engine&, const RoutingOptions& options) {
  if (options.on_progress && !options.on_progress(20000)) {
    return make_error(ErrorKind::kCancelled, "cancelled");
  }
  return RoutingReport{options.output.empty() ? "fake.rhw" : options.output.string(), "fake", 20000, 1.5};
}

Status Memory::import_from(const fs::path& file, const fs::path& folder) {
  if (!fs::exists(file)) return make_error(ErrorKind::kNotFound, "{} does not exist", file.string());
  if (fs::exists(folder) && !fs::is_empty(folder)) {
    return make_error(ErrorKind::kInvalidArgument, "{} is not empty", folder.string());
  }
  if (!Json::accept(contents(file))) return make_error(ErrorKind::kCorrupt, "{} is damaged", file.string());
  fs::create_directories(folder);
  std::ofstream(folder / kFile) << contents(file);
  return {};
}

}  // namespace rhapsode
