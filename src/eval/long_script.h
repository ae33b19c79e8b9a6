// What is said in a long conversation: joined chats, with facts among them that are stated, corrected, taken
// back, and asked about long afterwards. Decided by data, numbers and seed alone.
//
// Turns of the chats come in each chat's order, the next chat drawn by how much it has left, so that every
// stretch is alike; when all are said they begin again. Facts are made up: people, attributes and values that
// nobody can guess, in forms that a person would use. They are stated in the first sixth, corrected or taken
// back in the second, and asked about `asked_after` turns after what was said last of them. Threads: any.
// Errors: kInvalidArgument for numbers that do not fit one another.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "eval/dataset.h"

namespace rhapsode::eval {

struct LongNumbers {
  int turns = 3000;
  int facts = 50;
  int corrected = 20;  // of the facts
  int retracted = 10;  // of the others
  int asked_after = 1000;
  int answered_every = 10;  // of the chats' turns, those that the model answers instead of the chat
  int window = 250;         // turns reported together
};

enum class FactFate : uint8_t { kStated, kCorrected, kRetracted };
const char* to_string(FactFate fate);  // "stated", "corrected", "retracted"

struct ScriptedFact {
  FactFate fate = FactFate::kStated;
  std::string person;
  std::string attribute;  // "favourite tea"
  std::string question;
  std::string value;      // first told
  std::string corrected;  // told later; empty: never
  int last_told = 0;      // turn
  int asked = 0;          // turn
};

struct ScriptTurn {
  enum class Kind : uint8_t { kChat, kAnswered, kFact, kAsk };
  Kind kind = Kind::kChat;
  std::string text;    // of the user
  std::string answer;  // said elsewhere, by an assistant; kAnswered, kAsk: the model's own
  std::string speaker;
  std::string time;
  int fact = -1;  // of kFact, kAsk
};

struct Script {
  std::vector<ScriptTurn> turns;
  std::vector<ScriptedFact> facts;
};

// The same in another number of turns, all in proportion.
LongNumbers scaled(const LongNumbers& numbers, int turns);

Result<Script> write_script(const Dataset& dataset, const LongNumbers& numbers, uint64_t seed);

}  // namespace rhapsode::eval
