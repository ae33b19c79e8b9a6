#include "cli/model_location.h"

#include "cli/home.h"

namespace rhapsode::cli {

Result<std::filesystem::path> locate_model(const std::string& name) {
  std::error_code error;
  if (name.find('/') != std::string::npos || name.ends_with(".gguf")) {
    if (std::filesystem::is_directory(name, error)) {
      return make_error(ErrorKind::kInvalidArgument, "{} is a folder; name the .gguf file in it", name);
    }
    if (!std::filesystem::exists(name, error)) {
      return make_error(ErrorKind::kNotFound,
                        "there is no file {}; give the path of a GGUF file or a catalogue name", name);
    }
    return std::filesystem::path(name);
  }
  std::filesystem::path path = home_folder() / "models" / (name + ".gguf");
  if (!std::filesystem::exists(path, error)) {
    return make_error(ErrorKind::kNotFound, "the model '{}' is not in {}; run `rhapsode pull {}`", name,
                      path.parent_path().string(), name);
  }
  return path;
}

}  // namespace rhapsode::cli
