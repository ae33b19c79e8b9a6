// Checks of a parsed GGUF that do not concern its layout: what every model must say, and the vocabulary.
//
// libllama reads the vocabulary after us and aborts the process on some damage (two equal tokens, a begin
// token that is to be added but does not exist) or reads outside of arrays of the wrong type; all of that is
// refused here, by name. A file without a vocabulary (an adapter) passes. Cost: O(tokens), about 10 ms for
// 150,000.
#pragma once

#include <string>

#include "base/result.h"
#include "model/gguf_file.h"

namespace rhapsode::model {

// `label` stands for the file in messages.
Status check_general(const GgufFile& file, const std::string& label);
Status check_vocabulary(const GgufFile& file, const std::string& label);

}  // namespace rhapsode::model
