// Answers as question-answering metrics compare them: SQuAD's normalisation.
//
// normalise_answer(): lower case, ASCII punctuation removed (not replaced), the words a, an and the removed,
// runs of white space made one space; in this order and with Unicode's notion of letters, as the official
// script does. Bytes that are not UTF-8 are kept as they are. Threads: any. Cost: O(text). Errors: none.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rhapsode::eval {

std::string normalise_answer(std::string_view text);

// The words of normalise_answer().
std::vector<std::string> answer_words(std::string_view text);

// What of a model's reply counts as its answer: the first line that is not blank, without white space, a
// leading "Answer:" and a final full stop. With a mark, of what stands behind its last place in the reply, or
// of all of it where it does not occur.
std::string answer_of_reply(std::string_view reply, std::string_view mark = {});

}  // namespace rhapsode::eval
