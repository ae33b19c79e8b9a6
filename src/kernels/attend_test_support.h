// Worlds for the tests of attend: pages full of garbage, random plans over them, and both ways to run a
// batch.
//
// A World owns pages and tensors of one batch. run_reference() and run_cpu() write the new rows, then attend;
// they leave the plan as it was, so a world can be run many times. Not thread-safe; test code only.
#pragma once

#include <deque>
#include <random>
#include <vector>

#include "kernels/attend.h"
#include "kernels/cpu/attend.h"

namespace rhapsode::kernels::testing {

using Random = std::mt19937;

int uniform(Random& random, int low, int high);
std::vector<float> normals(Random& random, size_t count);

struct World {
  KvShape shape;
  AttendLayer layer;
  BatchPlan plan;
  std::vector<float> q, k, v;  // [rows][heads or kv_heads][head_dim]

  // A page whose bytes are all NaN (int8: the scales are); `count` slots are then filled with random rows.
  Page* add_page(Random& random, int first_position, int count, bool gathered = false);
  // A copy of a page and its bytes.
  Page* copy_page(const Page& page);
  // Gives every page room for bounds, none of which are computed.
  void add_bounds(const BoundsShape& bounds);
  void fill_tensors(Random& random);
  // Puts every page on one of so many devices.
  void spread(Random& random, int devices);
  int rows() const { return plan.rows(); }

 private:
  std::deque<Page> pages_;
  std::deque<std::vector<std::byte>> storage_;
  std::deque<PageBounds> bounds_;
};

struct RunResult {
  std::vector<float> out;                               // [rows][heads][head_dim]
  std::vector<float> lse;                               // [rows][heads]
  std::vector<std::vector<double>> mass_per_reference;  // [sequence]
  std::vector<std::vector<double>> mass_per_token;
  std::vector<std::vector<std::vector<PageReference>>> selected;  // [sequence][kv_head]; empty lists: all
};

RunResult run_reference(World& world);

struct CpuRun {
  int threads = 1;
  bool deterministic = false;
  bool mass = false;
  int layer = 0;
  SparseOptions sparse{};
};
RunResult run_cpu(World& world, const CpuRun& run = {});

// How far the CPU may be from the reference, relative to values of order 1.
float tolerance(KvType type);

// max |a - b|; -inf equals -inf; NaN gives infinity.
float largest_difference(const std::vector<float>& a, const std::vector<float>& b);

RopeSpec random_rope(Random& random, int head_dim);

// A world of random heads, dimensions, pages, shifts, masks, windows and rows; passes validate().
World random_world(Random& random, KvType type);

// A world of decode rows under read budgets: many pages, some short, masked or at other shifts; passes
// validate().
World random_sparse_world(Random& random, KvType type, const BoundsShape& bounds);

}  // namespace rhapsode::kernels::testing
