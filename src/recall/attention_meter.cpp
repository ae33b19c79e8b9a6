#include "recall/attention_meter.h"

#include <algorithm>

namespace rhapsode::recall {

using kernels::kPageTokens;

namespace {

// A pass keeps a sum for every slot of every row's list: so many lists of 64 slots at most.
constexpr int kMostLists = 16384;

std::vector<float> shares_of(const MeteredContext& context, std::span<const double> slots) {
  std::vector<double> sums(static_cast<size_t>(context.group_count));
  double all = 0;
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    sums[static_cast<size_t>(context.groups[slot])] += slots[slot];
    all += slots[slot];
  }
  std::vector<float> shares;
  for (const double sum : sums) shares.push_back(all > 0 ? static_cast<float>(sum / all) : 0);
  return shares;
}

}  // namespace

Result<std::vector<std::vector<float>>> attention_shares(PassRunner& runner, const MeteredContext& context,
                                                         std::span<const MeteredRow> rows) {
  std::vector<std::vector<float>> shares;
  const int lists = std::max(1, static_cast<int>(context.references.size()));
  while (shares.size() < rows.size()) {
    const int most = std::clamp(kMostLists / lists, 1, runner.most_rows());
    const auto now = rows.subspan(shares.size(), std::min<size_t>(most, rows.size() - shares.size()));
    PassBatch batch;
    batch.mass = true;
    for (const MeteredRow& row : now) {
      batch.plan.sequences.push_back({batch.plan.rows(), 1, context.references, {}, {}});
      batch.tokens.push_back(row.token);
      batch.plan.positions.push_back(row.position);
      batch.plan.writes.push_back({});
    }
    RH_TRY(const AttentionMass mass, runner.attention_mass(batch));
    for (const std::vector<double>& slots : mass) shares.push_back(shares_of(context, slots));
  }
  return shares;
}

}  // namespace rhapsode::recall
