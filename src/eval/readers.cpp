#include "eval/readers.h"

#include <algorithm>
#include <array>

#include "eval/dataset_builder.h"
#include "eval/random.h"

namespace rhapsode::eval {
namespace {

struct NamedReader {
  const char* name;
  Reader read;
};
constexpr std::array<NamedReader, 12> kReaders{{{"musique", read_musique},
                                                {"hotpot", read_hotpot},
                                                {"nq-oracle", read_nq_oracle},
                                                {"squad", read_squad},
                                                {"cacheblend", read_cacheblend},
                                                {"passages", read_passages},
                                                {"timeqa", read_timeqa},
                                                {"timeqa-questions", read_timeqa_questions},
                                                {"pep-successions", make_pep_successions},
                                                {"needles", make_needles},
                                                {"peps", make_pep_questions},
                                                {"beam", read_beam}}};

Status read_part(const Task& task, const DataPart& part, const std::filesystem::path& data_folder,
                 DatasetBuilder& builder) {
  const std::filesystem::path path = data_folder / part.path;
  if (!std::filesystem::exists(path)) {
    return make_error(ErrorKind::kNotFound,
                      "the data of task {} is not at '{}': give --data FOLDER, or get it with "
                      "scripts/fetch_eval_data.sh FOLDER",
                      task.name, path.string());
  }
  const auto found = std::find_if(kReaders.begin(), kReaders.end(),
                                  [&](const NamedReader& reader) { return part.reader == reader.name; });
  if (found == kReaders.end()) {
    return make_error(ErrorKind::kInvalidArgument, "task {}: there is no reader '{}'", task.name,
                      part.reader);
  }
  ReaderOptions options(part, task.seed);
  RH_TRY_STATUS(found->read({path, part.group, options}, builder));
  return options.finish();
}

}  // namespace

int DatasetBuilder::add_document(std::string title, std::string text, std::string file_name) {
  const auto [entry, added] = known_.try_emplace({title, text}, static_cast<int>(dataset_.documents.size()));
  if (added) dataset_.documents.push_back({std::move(title), std::move(text), std::move(file_name)});
  return entry->second;
}

int DatasetBuilder::add_message(std::string text) {
  dataset_.documents.push_back({"", std::move(text), ""});
  return static_cast<int>(dataset_.documents.size()) - 1;
}

int ReaderOptions::integer(const char* key, int otherwise, int low, int high) {
  known_.insert(key);
  const auto found = part_.options.find(key);
  if (found == part_.options.end()) return otherwise;
  int value = 0;
  const char* end = found->second.data() + found->second.size();
  const auto [stopped, error] = std::from_chars(found->second.data(), end, value);
  if (error == std::errc() && stopped == end && value >= low && value <= high) return value;
  status_ = make_error(ErrorKind::kInvalidArgument, "reader {}: '{}' must be a whole number in [{}, {}]",
                       part_.reader, key, low, high);
  return otherwise;
}

std::string ReaderOptions::text(const char* key, const char* otherwise) {
  known_.insert(key);
  const auto found = part_.options.find(key);
  return found == part_.options.end() ? otherwise : found->second;
}

Status ReaderOptions::finish() {
  RH_TRY_STATUS(status_);
  for (const auto& [key, value] : part_.options) {
    if (!known_.contains(key)) {
      return make_error(ErrorKind::kInvalidArgument, "reader {} has no option '{}'", part_.reader, key);
    }
  }
  return {};
}

std::vector<std::string> reader_names() {
  std::vector<std::string> names;
  for (const NamedReader& reader : kReaders) names.emplace_back(reader.name);
  return names;
}

Result<Dataset> load_dataset(const Task& task, const std::filesystem::path& data_folder, bool with_filler) {
  Dataset dataset;
  DatasetBuilder builder(dataset);
  for (const DataPart& part : task.data) RH_TRY_STATUS(read_part(task, part, data_folder, builder));
  dataset.own_documents = dataset.documents.size();
  if (with_filler) {
    for (const DataPart& part : task.filler) {
      const size_t questions = dataset.questions.size();
      RH_TRY_STATUS(read_part(task, part, data_folder, builder));
      dataset.questions.resize(questions);
    }
  }
  const bool talks = task.kind == TaskKind::kTalk && !dataset.conversations.empty();
  if (dataset.questions.empty() && !talks) {
    return make_error(ErrorKind::kCorrupt, "task {}: its data holds no questions", task.name);
  }
  return dataset;
}

std::vector<int> draw_questions(const Dataset& dataset, int limit, uint64_t seed) {
  std::vector<std::string> groups;
  std::map<std::string, std::vector<int>> by_group;
  for (size_t i = 0; i < dataset.questions.size(); ++i) {
    const std::string& group = dataset.questions[i].group;
    if (!by_group.contains(group)) groups.push_back(group);
    by_group[group].push_back(static_cast<int>(i));
  }
  for (const std::string& group : groups) Random(seed, group).shuffle(by_group[group]);
  const size_t most = limit > 0 ? static_cast<size_t>(limit) : dataset.questions.size();
  std::vector<int> drawn;
  for (size_t turn = 0; drawn.size() < std::min(most, dataset.questions.size()); ++turn) {
    for (const std::string& group : groups) {
      if (turn < by_group[group].size() && drawn.size() < most) drawn.push_back(by_group[group][turn]);
    }
  }
  return drawn;
}

}  // namespace rhapsode::eval
