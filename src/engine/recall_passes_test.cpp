// Recall's passes on a tiny model: encoding, states and citing against the same rows run another way.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <optional>

#include "engine/page_difference.h"
#include "engine/passes_fixture.h"
#include "recall/chain.h"
#include "recall/citer.h"
#include "recall/judge.h"
#include "recall/moments.h"
#include "recall/passage_tokenizer.h"
#include "text/logits.h"

namespace rhapsode {
namespace {

using recall::PassageTokens;

class RecallPasses : public PassesFixture {
 protected:
  PassageTokens passage(int tokens, int seed) const {
    PassageTokens passage;
    for (int i = 0; i < tokens; ++i) passage.tokens.push_back(20 + (seed * 31 + i * 37) % 200);
    passage.header_tokens = std::min(5, tokens);
    passage.text_tokens = tokens - passage.header_tokens;
    return passage;
  }
  std::vector<recall::Encoded> encode(std::vector<PassageTokens> passages, bool index_only = false) {
    auto encoded = encoder_->encode(passages, index_only);
    EXPECT_TRUE(encoded.ok()) << encoded.error().message;
    return encoded.ok() ? std::move(encoded).value() : std::vector<recall::Encoded>{};
  }
  double difference(const recall::Encoded& a, const recall::Encoded& b, int tokens) const {
    return engine::page_difference(runner_->kv_shape(), a.pages, b.pages, tokens).value();
  }
};

TEST_F(RecallPasses, PassagesEncodedTogetherEqualEachEncodedAlone) {
  // Lengths around pages and passes, so that some go on in the next pass.
  const std::vector<PassageTokens> passages = {passage(64, 1),  passage(65, 2), passage(300, 3),
                                               passage(640, 4), passage(1, 5),  passage(127, 6)};
  const auto together = encode(passages);
  for (size_t i = 0; i < passages.size(); ++i) {
    const auto alone = encode({passages[i]});
    const auto tokens = static_cast<int>(passages[i].tokens.size());
    EXPECT_LT(difference(together[i], alone[0], tokens), 1e-5) << i;
    ASSERT_EQ(together[i].chunk_states.size(), alone[0].chunk_states.size());
    for (size_t j = 0; j < alone[0].chunk_states.size(); ++j) {
      EXPECT_NEAR(together[i].chunk_states[j], alone[0].chunk_states[j], 1e-4);
    }
  }
}

TEST_F(RecallPasses, IndexOnlyEncodingGivesTheSameStatesAndNoPages) {
  const std::vector<PassageTokens> passages = {passage(200, 1), passage(33, 2)};
  const auto full = encode(passages);
  const auto index_only = encode(passages, /*index_only=*/true);
  for (size_t i = 0; i < passages.size(); ++i) {
    EXPECT_TRUE(index_only[i].pages.empty());
    EXPECT_EQ(index_only[i].chunks, (passages[i].text_tokens + 15) / 16);
    ASSERT_EQ(full[i].chunk_states.size(), index_only[i].chunk_states.size());
    for (size_t j = 0; j < full[i].chunk_states.size(); ++j) {
      EXPECT_NEAR(full[i].chunk_states[j], index_only[i].chunk_states[j], 1e-4);
    }
  }
}

// Also of the chunk that goes on in the next pass: 175 of the second passage's tokens fit the first one.
TEST_F(RecallPasses, ChunkStatesAreMeansOfTheStatesOfTheirTokens) {
  PassageTokens text = passage(300, 4);
  text.header_tokens = 5;
  text.text_tokens = 290;
  const auto encoded = encode({passage(337, 2), text}, true);
  const auto states = encoder_->question_states(text.tokens);
  ASSERT_TRUE(states.ok()) << states.error().message;
  const size_t width = runner_->architecture().embedding;
  ASSERT_EQ(encoded[1].chunk_states.size(), 19 * width);
  for (int chunk = 0; chunk < 19; ++chunk) {
    const int begin = text.header_tokens + 16 * chunk;
    const int end = std::min(begin + 16, text.header_tokens + text.text_tokens);
    for (size_t i = 0; i < width; ++i) {
      double mean = 0;
      for (int token = begin; token < end; ++token) mean += (*states)[token * width + i] / (end - begin);
      EXPECT_NEAR(encoded[1].chunk_states[chunk * width + i], mean, 1e-4) << chunk << " " << i;
    }
  }
}

// A passage behind the prefix is what a prefill of both as one text gives.
TEST_F(RecallPasses, EncodingAfterThePrefixEqualsOnePrefillOfBoth) {
  const PassageTokens text = passage(150, 9);
  const auto encoded = encode({text});
  std::vector<int32_t> whole = frame_->prefix();
  const auto start = static_cast<int>(whole.size());
  whole.insert(whole.end(), text.tokens.begin(), text.tokens.end());

  recall::Stream stream;
  stream.tokens = whole;
  stream.output_begin = start;
  stream.output_end = static_cast<int>(whole.size());
  std::vector<float> next_whole;
  const auto keep_last = [&](std::vector<float>& row) {
    return [&row](int, int, std::span<const float> logits) { row.assign(logits.begin(), logits.end()); };
  };
  ASSERT_TRUE(
      recall::feed(*passes_, std::span(&stream, 1), model::PassGoal::kLogits, keep_last(next_whole)).ok());

  // One more token read behind the stored pages predicts what it predicts behind the prefill.
  const std::vector<int32_t> probe = {77};
  std::vector<float> behind_pages;
  std::vector<float> behind_whole;
  recall::Stream reader;
  recall::add_references(*encoder_->prefix_pages(), start, 0, reader.context);
  recall::add_references(encoded[0].pages, 150, start, reader.context);
  reader.tokens = probe;
  reader.position = start + 150;
  reader.output_end = 1;
  recall::Stream plain;
  recall::add_references(stream.pages, start + 150, 0, plain.context);
  plain.tokens = probe;
  plain.position = start + 150;
  plain.output_end = 1;
  ASSERT_TRUE(
      recall::feed(*passes_, std::span(&reader, 1), model::PassGoal::kLogits, keep_last(behind_pages)).ok());
  ASSERT_TRUE(
      recall::feed(*passes_, std::span(&plain, 1), model::PassGoal::kLogits, keep_last(behind_whole)).ok());
  ASSERT_EQ(behind_pages.size(), behind_whole.size());
  for (size_t i = 0; i < behind_pages.size(); ++i) EXPECT_NEAR(behind_pages[i], behind_whole[i], 1e-3);
}

TEST_F(RecallPasses, QuestionStatesHoldARowForEveryToken) {
  const std::vector<int32_t> tokens = {30, 31, 32, 33, 34, 35, 36};
  const auto states = encoder_->question_states(tokens);
  ASSERT_TRUE(states.ok()) << states.error().message;
  const size_t width = runner_->architecture().embedding;
  ASSERT_EQ(states->size(), tokens.size() * width);
  // Causal: the first rows do not depend on later tokens.
  const auto shorter = encoder_->question_states(std::span(tokens).first(3));
  for (size_t i = 0; i < 3 * width; ++i) EXPECT_NEAR((*states)[i], (*shorter)[i], 1e-4);
}

TEST_F(RecallPasses, CitingMeasuresWhatTheAnswerLosesWithoutAPassage) {
  const std::vector<PassageTokens> tokens = {passage(100, 1), passage(70, 2)};
  const auto encoded = encode(tokens);
  const auto start = static_cast<int32_t>(frame_->prefix().size());
  const std::string text(400, 'x');
  std::vector<recall::ReadPassage> read(2);
  for (int i = 0; i < 2; ++i) {
    read[i].pages = encoded[i].pages;
    read[i].tokens = &tokens[i];
    read[i].text = text;
    read[i].shift = i == 0 ? start : start + 100;
  }
  const std::vector<int32_t> tail = {40, 41, 42};
  const std::vector<int32_t> answer = {50, 51};
  recall::AnsweredPrompt prompt;
  recall::add_references(*encoder_->prefix_pages(), start, 0, prompt.prefix);
  prompt.passages = read;
  prompt.tail = tail;
  prompt.answer = answer;
  prompt.tail_position = start + 170;
  recall::CiteOptions options;
  options.least_nats = -1e9;
  options.least_share = -1e9;
  const auto citing = recall::Citer(*passes_).cite(prompt, options);
  ASSERT_TRUE(citing.ok()) << citing.error().message;
  EXPECT_EQ(citing->supports.size(), 2u);

  // The same by hand: the rows behind both passages, and behind the second one alone at its place.
  const auto likelihood = [&](bool first, bool second) {
    std::vector<int32_t> rows = {40, 41, 42, 50};
    recall::Stream stream;
    stream.context = prompt.prefix;
    if (first) recall::add_references(encoded[0].pages, 100, read[0].shift, stream.context);
    if (second) recall::add_references(encoded[1].pages, 70, read[1].shift, stream.context);
    stream.tokens = rows;
    stream.position = prompt.tail_position;
    stream.output_begin = 2;
    stream.output_end = 4;
    double sum = 0;
    const auto add = [&](int, int token, std::span<const float> logits) {
      sum += *text::log_softmax_of(logits, token == 2 ? 50 : 51);
    };
    EXPECT_TRUE(recall::feed(*passes_, std::span(&stream, 1), model::PassGoal::kLogits, add).ok());
    return sum;
  };
  EXPECT_NEAR(citing->answer_nats, likelihood(true, true), 1e-4);
  EXPECT_NEAR(citing->closed_nats, likelihood(false, false), 1e-4);
  for (const recall::Support& support : citing->supports) {
    const double without = support.passage == 0 ? likelihood(false, true) : likelihood(true, false);
    EXPECT_NEAR(support.passage_nats, likelihood(true, true) - without, 1e-4);
  }
}

TEST_F(RecallPasses, JudgingIsTheGainOfTheQuestionsLikelihoodBehindAPassage) {
  const std::vector<PassageTokens> tokens = {passage(100, 1), passage(70, 2)};
  const auto encoded = encode(tokens);
  std::vector<recall::Candidate> candidates;
  for (int i = 0; i < 2; ++i)
    candidates.push_back({encoded[i].pages, static_cast<int>(tokens[i].tokens.size())});
  const std::string question = "Who stands in the hall of the lamp house?";
  recall::LikelihoodJudge judge(*passes_, *encoder_, *frame_);
  const auto scores = judge.scores(question, candidates);
  ASSERT_TRUE(scores.ok()) << scores.error().message;
  ASSERT_EQ(scores->size(), 2u);

  // By hand: one prefill of prefix, passage and question.
  const auto asked = *frame_->routing_question(question);
  const auto [first, last] = recall::question_span(asked.size());
  const auto likelihood = [&](const std::vector<int32_t>& read) {
    std::vector<int32_t> rows = frame_->prefix();
    rows.insert(rows.end(), read.begin(), read.end());
    const auto begin = static_cast<int>(rows.size());
    rows.insert(rows.end(), asked.begin(), asked.begin() + static_cast<int64_t>(last));
    recall::Stream stream;
    stream.tokens = rows;
    stream.output_begin = begin + static_cast<int>(first) - 1;
    stream.output_end = static_cast<int>(rows.size()) - 1;
    double sum = 0;
    const auto add = [&](int, int token, std::span<const float> logits) {
      sum += *text::log_softmax_of(logits, rows[token + 1]);
    };
    EXPECT_TRUE(recall::feed(*passes_, std::span(&stream, 1), model::PassGoal::kLogits, add).ok());
    return sum;
  };
  for (int i = 0; i < 2; ++i) {
    EXPECT_NEAR((*scores)[i], likelihood(tokens[i].tokens) - likelihood({}), 1e-3) << i;
  }
}

// A chain by hand: every reading alone, a pass of its own.
class ChainPasses : public RecallPasses {
 protected:
  void SetUp() override {
    RecallPasses::SetUp();
    for (int i = 0; i < 6; ++i) tokens_.push_back(passage(40 + 17 * i, i + 1));
    encoded_ = encode(tokens_);
    for (size_t i = 0; i < tokens_.size(); ++i) {
      candidates_.push_back(
          {{encoded_[i].pages, static_cast<int>(tokens_[i].tokens.size())}, 0.1 * double(i % 3), {}});
    }
    candidates_[4].linked = {2};
    candidates_[2].linked = {4};
  }
  double likelihood(const std::vector<size_t>& read) {
    const auto asked = *frame_->routing_question(kQuestion);
    const auto [first, last] = recall::question_span(asked.size());
    const std::vector<int32_t> rows(asked.begin(), asked.begin() + static_cast<int64_t>(last));
    recall::Stream stream;
    recall::add_references(*encoder_->prefix_pages(), prefix_tokens(), 0, stream.context);
    stream.position = prefix_tokens();
    for (const size_t i : read) {
      const auto count = static_cast<int>(tokens_[i].tokens.size());
      recall::add_references(encoded_[i].pages, count, stream.position, stream.context);
      stream.position += count;
    }
    stream.tokens = rows;
    stream.output_begin = static_cast<int>(first) - 1;
    stream.output_end = static_cast<int>(last) - 1;
    double sum = 0;
    const auto count_row = [&](int, int token, std::span<const float> logits) {
      sum += *text::log_softmax_of(logits, rows[token + 1]);
    };
    EXPECT_TRUE(recall::feed(*passes_, std::span(&stream, 1), model::PassGoal::kLogits, count_row).ok());
    return sum;
  }
  // What follows `read`: the candidate and its gain, or none that pays; scores of all into `scores`.
  std::optional<std::pair<size_t, double>> next(const std::vector<size_t>& read, double cost,
                                                std::map<size_t, double>& scores) {
    std::vector<double> gains;
    std::vector<size_t> others;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      if (std::find(read.begin(), read.end(), i) != read.end()) continue;
      std::vector<size_t> with = read;
      with.push_back(i);
      others.push_back(i);
      gains.push_back(likelihood(with) - likelihood(read));
    }
    const recall::Moments moments = recall::moments_of(gains);
    std::optional<std::pair<size_t, double>> best;
    for (size_t n = 0; n < others.size(); ++n) {
      const double linked = others[n] == 4 ? 1.0 : 0.0;  // to 2, which stands first
      scores[others[n]] = moments.z(gains[n]) + candidates_[others[n]].prior + linked;
      if (gains[n] < cost || (best && scores[others[n]] <= scores[best->first])) continue;
      best = {others[n], gains[n]};
    }
    return best;
  }

  static constexpr char kQuestion[] = "Who stands in the hall of the lamp house?";
  std::vector<PassageTokens> tokens_;
  std::vector<recall::Encoded> encoded_;
  std::vector<recall::ChainCandidate> candidates_;
};

TEST_F(ChainPasses, AChainTakesWhatMakesTheQuestionLikeliestAndPaysForItself) {
  recall::EvidenceChain maker(*passes_, *encoder_, *frame_);
  for (const double cost : {-1e9, 0.0, 0.5, 1e9}) {
    const auto chain = maker.build(kQuestion, candidates_, 2, {4, cost});
    ASSERT_TRUE(chain.ok()) << chain.error().message;
    ASSERT_EQ(chain->gains.size(), chain->chosen.size());
    EXPECT_EQ(chain->chosen[0], 2u);
    EXPECT_NEAR(chain->gains[0], likelihood({2}) - likelihood({}), 1e-3);
    std::vector<size_t> read = {2};
    while (read.size() < 4) {
      std::map<size_t, double> scores;
      const auto expected = next(read, cost, scores);
      if (read.size() == 1) {
        for (const auto& [i, score] : scores) EXPECT_NEAR(chain->seconds[i], score, 1e-2);
      }
      if (!expected) break;
      ASSERT_GT(chain->chosen.size(), read.size()) << "cost " << cost;
      EXPECT_EQ(chain->chosen[read.size()], expected->first) << "cost " << cost;
      EXPECT_NEAR(chain->gains[read.size()], expected->second, 1e-3);
      read.push_back(expected->first);
    }
    EXPECT_EQ(chain->chosen.size(), read.size()) << "it ends when nothing pays, or at its length";
    if (cost == -1e9) {
      EXPECT_EQ(read.size(), 4u);
    } else if (cost == 1e9) {
      EXPECT_EQ(read.size(), 1u);
    }
    EXPECT_EQ(maker.build(kQuestion, candidates_, 2, {4, cost})->chosen, chain->chosen);
  }
  EXPECT_TRUE(maker.build(kQuestion, {}, 0, {4, 0})->chosen.empty());
}

TEST(ChainFirst, PutsTheChainInFrontAndALoneFirstChangesNothing) {
  const auto ranked = [](int64_t id) { return recall::Ranked{id, 9, 0, 0, 0, 0, std::nullopt}; };
  const std::vector<recall::Ranked> before = {ranked(1), ranked(2), ranked(3), ranked(4)};
  const std::vector<recall::Ranked> pool = {ranked(1), ranked(2), ranked(3), ranked(7)};
  const auto ids = [](const std::vector<recall::Ranked>& list) {
    std::vector<int64_t> out;
    for (const auto& one : list) out.push_back(one.passage);
    return out;
  };
  const recall::Chain chain{{0, 3}, {2.0, 1.5}, {0, 0.1, 0.9, 2.0}};
  EXPECT_EQ(ids(recall::chain_first(before, pool, chain)), (std::vector<int64_t>{1, 7, 3, 2, 4}));
  EXPECT_EQ(ids(recall::chain_first(before, pool, {{0}, {2.0}, {0, 1, 2, 3}})), ids(before));
  EXPECT_EQ(recall::chain_first(before, pool, {{0}, {2.0}, {}})[0].score, 9);
}

TEST(JudgeAgain, JoinsBothByTheirSpreadAndPutsTheUnjudgedAtTheMean) {
  const auto ranked = [](int64_t id, double score, std::optional<double> judged) {
    return recall::Ranked{id, score, 0, 0, 0, 0, judged};
  };
  std::vector<recall::Ranked> list = {ranked(1, 3, 0.0), ranked(2, 2, 4.0), ranked(3, 1, std::nullopt)};
  recall::judge_again(list);
  EXPECT_EQ(list[0].passage, 2);  // judged best by far
  EXPECT_EQ(list[1].passage, 1);  // below the mean as judged, best as found
  EXPECT_EQ(list[2].passage, 3);
  EXPECT_NEAR(list[2].score, -0.5, 1e-12);
}

TEST_F(RecallPasses, TokenRangesFollowTheBytesOfTheText) {
  const std::string text = "Grüße from the first line. A second one here. And a third.";
  const auto tokens = frame_->passage("Head", text);
  ASSERT_TRUE(tokens.ok());
  const std::vector<size_t> starts = {0, text.find("A second"), text.find("And a")};
  const auto ranges = recall::token_ranges(runner_->tokenizer(), *tokens, text, starts);
  ASSERT_EQ(ranges.size(), 3u);
  EXPECT_EQ(ranges.front().first, tokens->header_tokens);
  EXPECT_EQ(ranges.back().second, tokens->header_tokens + tokens->text_tokens);
  for (size_t i = 0; i + 1 < ranges.size(); ++i) EXPECT_EQ(ranges[i].second, ranges[i + 1].first);
  std::string second;
  for (int i = ranges[1].first; i < ranges[1].second; ++i)
    second += runner_->tokenizer().piece(tokens->tokens[i]);
  EXPECT_NE(second.find("second one here"), std::string::npos);
}

TEST_F(RecallPasses, TokensAreKeptAsLongAsThePassageIsTheSame) {
  recall::PassageTokenizer tokenizer(*frame_);
  const auto made = [&](int64_t passage, std::string_view header, std::string_view text) {
    return tokenizer.tokens(passage, header, text).value().tokens;
  };
  const auto plain = [&](std::string_view header, std::string_view text) {
    return frame_->passage(header, text).value().tokens;
  };
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(made(1, "Head", "a lamp"), plain("Head", "a lamp"));
    EXPECT_EQ(made(2, "Head", "a door"), plain("Head", "a door"));
  }
  EXPECT_EQ(tokenizer.kept(), 2u);
  EXPECT_EQ(made(1, "Head", "another"), plain("Head", "another"));  // the number has come again
  EXPECT_EQ(made(2, "Other", "a door"), plain("Other", "a door"));
  EXPECT_EQ(made(2, "", "Othera door"), plain("", "Othera door"));
  EXPECT_EQ(tokenizer.kept(), 2u);
  std::vector<std::string> texts;
  std::vector<recall::PassageTokenizer::Passage> passages;
  for (int i = 0; i < 40; ++i) texts.push_back(fmt::format("text of number {}", i / 2));
  for (int i = 0; i < 40; ++i) passages.push_back({100 + i, i % 2 == 0 ? "Head" : "", texts[i]});
  ASSERT_TRUE(tokenizer.prepare(passages, 4).ok());
  EXPECT_EQ(tokenizer.kept(), 42u);
  for (const auto& [id, header, text] : passages) EXPECT_EQ(made(id, header, text), plain(header, text));
  EXPECT_EQ(tokenizer.kept(), 42u);
  for (size_t i = 0; i < recall::PassageTokenizer::kMostKept + 5; ++i) {
    made(static_cast<int64_t>(i), "", "x");
    ASSERT_LE(tokenizer.kept(), recall::PassageTokenizer::kMostKept);
  }
}

}  // namespace
}  // namespace rhapsode
