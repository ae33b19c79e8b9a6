#include "kernels/cuda/device_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "kernels/cuda/attend_mass.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/plan_upload.h"
#include "kernels/element.h"

namespace rhapsode::kernels::cuda {

namespace {

void must(const Status& status) {
  if (!status.ok()) ADD_FAILURE() << status.error().message;
}

// The pages of a plan, copied to the GPU, and the plan over those copies.
class DevicePages {
 public:
  DevicePages(const BatchPlan& plan, const KvShape& shape) : plan_(plan), block_bytes_(shape.block_bytes()) {
    for_each_page([&](const Page* page) { copies_.try_emplace(page, *page); });
    must(bytes_.allocate(copies_.size() * block_bytes_, "pages"));
    size_t offset = 0;
    for (auto& [page, copy] : copies_) {
      copy.data = bytes_.at<std::byte>(offset);
      cudaMemcpy(copy.data, page->data, block_bytes_, cudaMemcpyHostToDevice);
      offset += block_bytes_;
    }
    for (SequencePlan& sequence : plan_.sequences) {
      for (PageReference& reference : sequence.references) reference.page = &copies_.at(reference.page);
      for (auto& list : sequence.own_lists) {
        for (PageReference& reference : list) reference.page = &copies_.at(reference.page);
      }
    }
    for (RowWrite& write : plan_.writes) {
      if (write.page) write.page = &copies_.at(write.page);
    }
  }

  const BatchPlan& plan() const { return plan_; }

  std::vector<std::pair<const Page*, std::vector<std::byte>>> read() const {
    std::vector<std::pair<const Page*, std::vector<std::byte>>> all;
    for (const auto& [page, copy] : copies_) {
      std::vector<std::byte> bytes(block_bytes_);
      cudaMemcpy(bytes.data(), copy.data, block_bytes_, cudaMemcpyDeviceToHost);
      all.emplace_back(page, std::move(bytes));
    }
    return all;
  }

 private:
  template <typename F>
  void for_each_page(const F& visit) const {
    for (const SequencePlan& sequence : plan_.sequences) {
      for (const PageReference& reference : sequence.references) visit(reference.page);
      for (const auto& list : sequence.own_lists) {
        for (const PageReference& reference : list) visit(reference.page);
      }
    }
    for (const RowWrite& write : plan_.writes) {
      if (write.page) visit(write.page);
    }
  }

  BatchPlan plan_;
  size_t block_bytes_;
  std::unordered_map<const Page*, Page> copies_;
  DeviceBuffer bytes_;
};

// A vector on the GPU.
DeviceBuffer uploaded(const std::vector<float>& values) {
  DeviceBuffer buffer;
  must(buffer.allocate(values.size() * sizeof(float), "a tensor"));
  must(buffer.upload(std::as_bytes(std::span(values))));
  return buffer;
}

std::vector<float> downloaded(const DeviceBuffer& buffer, size_t count, Element element) {
  std::vector<float> values(count);
  if (element == Element::kF32) {
    cudaMemcpy(values.data(), buffer.as<void>(), count * sizeof(float), cudaMemcpyDeviceToHost);
    return values;
  }
  std::vector<uint16_t> narrow(count);
  cudaMemcpy(narrow.data(), buffer.as<void>(), count * 2, cudaMemcpyDeviceToHost);
  for (size_t i = 0; i < count; ++i) values[i] = bf16_to_f32(narrow[i]);
  return values;
}

DevicePlan device_plan(const PlanPacker& packer, const DeviceBuffer& buffer, int layer) {
  const PlanOffsets& offsets = packer.offsets();
  DevicePlan plan;
  plan.rows = packer.sizes().rows;
  plan.positions = buffer.at<const int32_t>(offsets.angles);
  plan.row_sequence = buffer.at<const int32_t>(offsets.row_sequence);
  plan.writes = buffer.at<const DeviceWrite>(offsets.writes);
  plan.lists = buffer.at<const DeviceList>(offsets.lists) + packer.list_row(layer) * packer.sizes().sequences;
  plan.references = buffer.at<const DeviceReference>(offsets.references);
  plan.gathered = buffer.at<const int32_t>(offsets.gathered);
  return plan;
}

// The mass of one call, spread out as the plan's references are.
std::vector<std::vector<double>> mass_of(const testing::World& world, const DeviceAttend& call,
                                         const PlanPacker& packer, const DeviceBuffer& plan) {
  const size_t count = static_cast<size_t>(packer.reference_count()) * kPageTokens;
  MassTarget target;
  target.sequences = plan.at<const DeviceSequence>(packer.offsets().sequences);
  target.shared = plan.at<const DeviceList>(packer.offsets().lists);
  target.runs = plan.at<const DevicePageRun>(packer.offsets().runs);
  target.run_count = packer.sizes().runs;
  target.references = packer.reference_count();
  target.query_parts = mass_query_parts(world.shape, world.layer.heads, packer.sizes());
  const auto parts = static_cast<size_t>(mass_parts(world.shape, target.query_parts));
  DeviceBuffer mass;
  must(mass.allocate(parts * count * sizeof(double), "mass"));
  EXPECT_EQ(cudaMemset(mass.as<void>(), 0, parts * count * sizeof(double)), cudaSuccess);
  target.sums = mass.as<double>();
  attend_mass(call, target, nullptr);
  finish_mass(world.shape, target, nullptr);
  std::vector<double> packed(count);
  EXPECT_EQ(cudaMemcpy(packed.data(), mass.as<void>(), count * sizeof(double), cudaMemcpyDeviceToHost),
            cudaSuccess);
  std::vector<std::vector<double>> spread;
  for (int s = 0; s < packer.sizes().sequences; ++s) {
    auto& one =
        spread.emplace_back(world.plan.sequences[static_cast<size_t>(s)].references.size() * kPageTokens);
    const DeviceList list = packer.shared_list(s);
    for (int32_t r = list.begin; r < list.begin + list.count; ++r) {
      std::copy_n(packed.begin() + int64_t{r} * kPageTokens, kPageTokens,
                  one.begin() + int64_t{packer.origin(r)} * kPageTokens);
    }
  }
  return spread;
}

}  // namespace

DeviceResult run_device(testing::World& world, const DeviceRun& run) {
  const DevicePages pages(world.plan, world.shape);
  const std::vector<int32_t> tokens(static_cast<size_t>(world.rows()));
  PlanPacker packer(world.shape.layers, {1, run.tile_rows, 0});  // every tile is a wide one
  packer.pack({tokens, &pages.plan(), {}, run.mass});
  DeviceBuffer plan;
  must(plan.allocate(packer.bytes().size(), "a plan"));
  must(plan.upload(packer.bytes()));
  RopeTables ropes(std::vector<AttendLayer>(static_cast<size_t>(world.shape.layers), world.layer));
  must(ropes.start());
  must(ropes.fill(plan.at<const int32_t>(packer.offsets().angles), world.rows(), packer.sizes().shifts,
                  nullptr));
  const DeviceBuffer q = uploaded(world.q);
  const DeviceBuffer turned = uploaded(world.q);
  const DeviceBuffer k = uploaded(world.k);
  const DeviceBuffer v = uploaded(world.v);
  // Unwritten results are NaN.
  const DeviceBuffer out =
      uploaded(std::vector<float>(world.q.size(), std::numeric_limits<float>::quiet_NaN()));
  const size_t lse_count = static_cast<size_t>(world.rows()) * static_cast<size_t>(world.layer.heads);
  const DeviceBuffer lse = uploaded(std::vector<float>(lse_count, std::numeric_limits<float>::quiet_NaN()));

  DeviceAttend call;
  call.shape = world.shape;
  call.plan = device_plan(packer, plan, run.layer);
  call.layer = run.layer;
  call.heads = world.layer.heads;
  call.scale = world.layer.scale;
  call.window = world.layer.window;
  call.soft_cap = world.layer.soft_cap;
  const RopeRows rope = ropes.of_layer(run.layer);
  call.pairs = rope.pairs;
  call.adjacent = rope.adjacent;
  call.row_angles = rope.rows;
  call.write_angles = rope.writes;
  call.shift_angles = rope.shifts;
  call.q = q.as<const float>();
  call.k = k.as<const float>();
  call.v = v.as<const float>();
  call.q_stride = int64_t{world.layer.heads} * world.shape.head_dim;
  call.k_stride = call.v_stride = int64_t{world.shape.kv_heads} * world.shape.head_dim;
  call.turned = turned.as<float>();
  call.out = {out.as<void>(), run.out};
  call.lse = lse.as<float>();
  turn_and_write(call, nullptr);
  const TileList tiles{plan.at<const DeviceTile>(packer.offsets().tiles), packer.sizes().wide_tiles,
                       run.tile_rows};
  run.attend(call, tiles, packer.sizes().most_references);
  DeviceResult result;
  if (run.mass) result.mass_per_token = mass_of(world, call, packer, plan);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);

  result.out = downloaded(out, world.q.size(), run.out);
  result.lse = downloaded(lse, lse_count, Element::kF32);
  if (run.read_pages) result.pages = pages.read();
  return result;
}

}  // namespace rhapsode::kernels::cuda
