// From files of the data folder to questions and documents: one reader a format, named by tasks.
//
// A file is hostile input: what lacks a field is refused with file and record named. Documents of equal title
// and text are one. Threads: any. Cost: the file, in memory. Errors: kNotFound with what fetches the data,
// kCorrupt for what is not the format, kInvalidArgument for an option of the task that is none.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "eval/dataset.h"
#include "eval/task.h"

namespace rhapsode::eval {

std::vector<std::string> reader_names();

// All parts of the task, filler only when asked for; questions of all groups in the files' order.
Result<Dataset> load_dataset(const Task& task, const std::filesystem::path& data_folder, bool with_filler);

// A seeded selection, the groups in turn: the first n are part of any larger selection. 0: all.
std::vector<int> draw_questions(const Dataset& dataset, int limit, uint64_t seed);

}  // namespace rhapsode::eval
