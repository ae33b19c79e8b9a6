// Requests whose tokens are chosen from candidates against the same ones on whole rows, through the
// scheduler; the CPU finds the candidates by the reference.
#include <fmt/format.h>

#include <cmath>

#include "engine/passes_fixture.h"

namespace rhapsode {
namespace {

class TokenChoiceTest : public PassesFixture {
 protected:
  void adjust(engine::RunnerOptions& options) const override {
    options.reference_top_logits = from_candidates_;
    options.devices = devices_;
  }

  // All of them at once, on a model that was opened anew. One device computes deterministically, so that
  // it does not matter who shares a pass with whom.
  std::vector<Response> responses(const std::vector<Request>& requests, bool from_candidates) {
    from_candidates_ = from_candidates;
    open(/*deterministic=*/devices_ == 1);
    std::vector<std::shared_ptr<engine::RequestState>> states;
    for (const Request& request : requests) {
      auto state = std::make_shared<engine::RequestState>(request, *pool_);
      state->id = static_cast<int64_t>(states.size()) + 1;
      state->context_tokens = 512;
      state->prompt = state->tokens = request.tokens;
      state->sampler = text::Sampler::make(runner_->tokenizer(), request.sampling).value();
      state->sampler->observe(state->prompt);
      state->decoder = text::StreamDecoder::make({}).value();
      scheduler_->submit(state);
      states.push_back(std::move(state));
    }
    std::vector<Response> responses;
    for (const auto& state : states) {
      EXPECT_FALSE(state->wait_for_pause());
      EXPECT_TRUE(state->outcome->ok()) << (state->outcome->ok() ? "" : state->outcome->error().message);
      responses.push_back(state->outcome->ok() ? state->outcome->value() : Response());
    }
    return responses;
  }

  static Request request(SamplingOptions sampling, int number = 1) {
    Request request;
    for (int i = 0; i < 20; ++i) request.tokens.push_back(20 + (number * 31 + i * 37) % 200);
    request.max_tokens = 24;
    request.ignore_end = true;
    request.sampling = std::move(sampling);
    request.sampling.seed = static_cast<uint32_t>(number);
    return request;
  }

  static std::vector<Request> every_kind() {
    std::vector<Request> all;
    const auto next = [&](const SamplingOptions& sampling) -> Request& {
      all.push_back(request(sampling, static_cast<int>(all.size()) + 1));
      return all.back();
    };
    SamplingOptions sampling;
    next(sampling);
    next(sampling).top_logprobs = 3;
    next(sampling).top_logprobs = kernels::kTopLogits + 1;
    next(sampling).logits = true;
    next(sampling).prompt_logprobs = true;
    sampling.repetition_penalty = 1.3f;
    next(sampling);
    sampling.temperature = 1.5f;
    next(sampling);
    sampling.top_k = 7;
    next(sampling).top_logprobs = 2;
    sampling = {};
    sampling.temperature = 3;
    sampling.top_p = 0.9999999f;  // hardly ever reached by candidates
    next(sampling).top_logprobs = 2;
    sampling.top_p = 0.5f;
    next(sampling);
    sampling.top_p = 1;
    sampling.min_p = 0.2f;
    next(sampling);
    sampling.grammar = "root ::= [a-z ]+";
    next(sampling);
    return all;
  }

  static void expect_equal(const std::vector<Response>& actual, const std::vector<Response>& expected) {
    for (size_t r = 0; r < expected.size(); ++r) {
      SCOPED_TRACE(fmt::format("request {}", r));
      ASSERT_EQ(actual[r].tokens.size(), expected[r].tokens.size());
      EXPECT_EQ(actual[r].prompt_logprobs, expected[r].prompt_logprobs);
      for (size_t t = 0; t < expected[r].tokens.size(); ++t) {
        const GeneratedToken& a = actual[r].tokens[t];
        const GeneratedToken& b = expected[r].tokens[t];
        ASSERT_EQ(a.token, b.token) << "token " << t;
        EXPECT_EQ(a.logits, b.logits);
        EXPECT_NEAR(a.logprob, b.logprob, 1e-6);
        ASSERT_EQ(a.top.size(), b.top.size());
        for (size_t i = 0; i < b.top.size(); ++i) {
          EXPECT_EQ(a.top[i].token, b.top[i].token);
          EXPECT_NEAR(a.top[i].logprob, b.top[i].logprob, 1e-6);
        }
      }
    }
  }

  bool from_candidates_ = false;
  int devices_ = 1;
};

TEST_F(TokenChoiceTest, CandidatesGiveTheTokensOfWholeRowsInEveryCompany) {
  if (IsSkipped()) return;
  ASSERT_GT(runner_->tokenizer().size(), kernels::kTopLogits);
  const std::vector<Request> requests = every_kind();
  const std::vector<Response> expected = responses(requests, false);
  EXPECT_EQ(scheduler_->stats().candidate_tokens + scheduler_->stats().refetched_tokens, 0u);
  expect_equal(responses(requests, true), expected);
  EXPECT_GT(scheduler_->stats().candidate_tokens, 100u);
  EXPECT_GT(scheduler_->stats().refetched_tokens, 0u);
  // Alone, each is in a pass of its own kind.
  for (size_t r = 0; r < requests.size(); ++r) {
    SCOPED_TRACE(fmt::format("alone: request {}", r));
    expect_equal(responses({requests[r]}, true), {expected[r]});
  }
}

TEST_F(TokenChoiceTest, WhatCandidatesDoNotDecideIsCounted) {
  if (IsSkipped()) return;
  SamplingOptions sampling;
  sampling.temperature = 1;
  sampling.top_p = 0.9999999f;
  const auto undecided = responses({request(sampling)}, true);
  const EngineStats stats = scheduler_->stats();
  EXPECT_EQ(stats.candidate_tokens + stats.refetched_tokens, undecided[0].tokens.size());
  EXPECT_GT(stats.refetched_tokens, 0u);
  sampling.top_p = 1;  // comes whole
  responses({request(sampling)}, true);
  EXPECT_EQ(scheduler_->stats().candidate_tokens + scheduler_->stats().refetched_tokens, 0u);
}

TEST_F(TokenChoiceTest, ShardsFindAndKeepThemLikeOneDevice) {
  if (IsSkipped()) return;
  devices_ = 2;
  for (Request& one : every_kind()) {
    SCOPED_TRACE(fmt::format("seed {}", one.sampling.seed));
    const std::vector<Response> expected = responses({one}, false);
    expect_equal(responses({one}, true), expected);
  }
}

}  // namespace
}  // namespace rhapsode
