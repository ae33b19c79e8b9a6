// Questions with what they are asked about: the plain form that every reader of a data set makes.
//
// Documents are the sources a memory is built from, or the messages of conversations that are replayed into
// one; a span of one says where something stands, in bytes of its text. Numbers index Dataset::documents.
// Ownership and threads: plain values.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

namespace rhapsode::eval {

struct Document {
  std::string title;  // may be empty
  std::string text;
  std::string file_name;  // with an extension that says how to read it: "pep-0249.rst"; empty: plain text
};

struct Span {
  int document = 0;
  size_t begin = 0;
  size_t end = std::numeric_limits<size_t>::max();  // as here: all of it

  bool whole() const { return begin == 0 && end == std::numeric_limits<size_t>::max(); }
  bool overlaps(const Span& other) const {
    return document == other.document && begin < other.end && other.begin < end;
  }
  bool operator==(const Span&) const = default;
};

// One piece of evidence; any of the places will do.
struct Evidence {
  std::vector<Span> places;
};

struct Question {
  std::string id;     // unique in its group
  std::string group;  // the part of the task: "musique"
  std::string type;   // the data set's own kind of question: "2hop"; may be empty
  std::string text;
  std::vector<std::string> answers;  // any of them is right; the first is the one to be likely
  std::vector<std::string> values;   // all of them are asked for (value_recall); empty: no such question
  std::vector<Evidence> gold;        // all of them are needed
  std::vector<Span> own;             // what it came with, gold and distractors, in its order
  int answer_tokens = 0;             // most to generate; 0: as the task says
  std::vector<std::string> stale;    // what was right at another time, or was superseded
  int conversation = -1;             // what it is asked in: of Dataset::conversations; -1: none
};

// A message of a conversation; its words are a document.
struct SpokenMessage {
  int document = 0;
  std::string role;     // "user", "assistant"
  std::string speaker;  // may be empty
  std::string time;     // ISO 8601; empty: unknown
};

struct SpokenConversation {
  std::string name;  // unique; no '/'
  std::vector<SpokenMessage> messages;
};

struct Dataset {
  std::vector<Document> documents;
  std::vector<Question> questions;
  std::vector<SpokenConversation> conversations;
  size_t own_documents = 0;  // the first ones; what follows is filler
};

}  // namespace rhapsode::eval
