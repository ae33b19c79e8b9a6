#include "kernels/plan_shards.h"

namespace rhapsode::kernels {

namespace {

bool lies_on(const Page& page, int device) {
  return page.device == device;
}

std::vector<PageReference> of_device(std::span<const PageReference> references, int device) {
  std::vector<PageReference> own;
  for (const PageReference& reference : references) {
    if (lies_on(*reference.page, device)) own.push_back(reference);
  }
  return own;
}

SequencePlan share_of(const SequencePlan& whole, int device, std::vector<int32_t>& origins) {
  SequencePlan share;
  share.row_begin = whole.row_begin;
  share.row_count = whole.row_count;
  share.own_index = whole.own_index;
  share.references = of_device(whole.references, device);
  for (const auto& list : whole.own_lists) share.own_lists.push_back(of_device(list, device));
  for (size_t i = 0; i < whole.references.size(); ++i) {
    if (lies_on(*whole.references[i].page, device)) origins.push_back(static_cast<int32_t>(i));
  }
  return share;
}

Status check_device(const Page* page, int devices) {
  if (page == nullptr || (page->device >= 0 && page->device < devices)) return {};
  return make_error(ErrorKind::kInternal, "a page lies on device {} of {}", page->device, devices);
}

Status check_devices(const BatchPlan& plan, int devices) {
  const auto check_list = [&](std::span<const PageReference> references) -> Status {
    for (const PageReference& reference : references) RH_TRY_STATUS(check_device(reference.page, devices));
    return {};
  };
  for (const SequencePlan& sequence : plan.sequences) {
    RH_TRY_STATUS(check_list(sequence.references));
    for (const auto& list : sequence.own_lists) RH_TRY_STATUS(check_list(list));
  }
  for (const RowWrite& write : plan.writes) RH_TRY_STATUS(check_device(write.page, devices));
  return {};
}

}  // namespace

Status PlanShards::cut(const BatchPlan& plan) {
  RH_TRY_STATUS(check_devices(plan, devices()));
  for (int device = 0; device < devices(); ++device) {
    Share& share = shares_[static_cast<size_t>(device)];
    share.plan.positions = plan.positions;
    share.plan.writes = plan.writes;
    for (RowWrite& write : share.plan.writes) {
      if (write.page && !lies_on(*write.page, device)) write = {};
    }
    share.plan.sequences.clear();
    share.origins.assign(plan.sequences.size(), {});
    for (size_t s = 0; s < plan.sequences.size(); ++s) {
      share.plan.sequences.push_back(share_of(plan.sequences[s], device, share.origins[s]));
    }
  }
  return {};
}

}  // namespace rhapsode::kernels
