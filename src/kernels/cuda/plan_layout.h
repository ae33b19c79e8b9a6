// The context plan as kernels read it: flat arrays in one buffer, uploaded with one copy a pass.
//
// Host and device code share these plain structs; no CUDA header is needed. Offsets are bytes from the start
// of the buffer, every array is aligned to 16. Arrays whose length depends on the context only (references,
// gathered) lie last and shifts are padded, so that the offsets of decode steps stay the same for long.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rhapsode::kernels::cuda {

// One page as one reader sees it. `first` and the gathered positions are the reader's: shift included.
struct DeviceReference {
  const std::byte* data;  // the block
  uint64_t mask;          // visible as far as the mask says, and filled: this pass's writes included
  int32_t first;          // position of slot 0; of consecutive pages
  int32_t gathered;       // index of 64 positions in `gathered`; -1: consecutive
  int32_t shift_row;      // row of the shift table
  int32_t sink;
};
static_assert(sizeof(DeviceReference) == 32);

struct DeviceWrite {
  std::byte* data;  // the block; null: not kept
  int32_t slot;
  int32_t padding;
};
static_assert(sizeof(DeviceWrite) == 16);

struct DeviceList {
  int32_t begin;  // in `references`
  int32_t count;
};

// Pages of a sequence's shared list that lie side by side in one frame.
struct DevicePageRun {
  int32_t sequence;
  int32_t begin;  // in `references`
  int32_t count;  // at most kMostRunPages
  int32_t padding;
};
inline constexpr int kMostRunPages = 8;

struct DeviceSequence {
  int32_t row_begin;
  int32_t row_count;
};

// Some rows of one sequence, for kernels that work on several at once.
struct DeviceTile {
  int32_t sequence;
  int32_t row_begin;
  int32_t row_count;
  int32_t padding;
};

// What a block works on at a time: a tile's queries of one KV head, with some of the pages of the tile's
// list.
struct DevicePart {
  int32_t item;   // tile x KV heads + KV head; -1: there is no part
  int32_t begin;  // in the list
  int32_t end;    // INT32_MAX: its end
  int32_t slot;   // where the partial result goes; -1: it is the only one
};

// An item that was cut, and its partial results.
struct DeviceMerge {
  int32_t item;
  int32_t first_slot;
  int32_t count;
  int32_t padding;
};

// Where everything lies in the uploaded buffer.
struct PlanOffsets {
  size_t tokens = 0;        // int32 [rows]
  size_t output_rows = 0;   // int32 [outputs]
  size_t angles = 0;        // int32 [2 * rows + shifts]: positions, frame positions of writes, minus shifts
  size_t row_sequence = 0;  // int32 [rows]
  size_t sequences = 0;     // DeviceSequence [sequences]
  size_t writes = 0;        // DeviceWrite [rows]
  size_t lists = 0;         // DeviceList [list rows][sequences]
  size_t references = 0;    // DeviceReference [references]
  size_t gathered = 0;      // int32 [gathered pages][64]
  size_t tiles = 0;         // DeviceTile [narrow tiles + wide tiles]
  size_t output_tiles = 0;  // likewise, of output rows and what lies between those of a tile
  size_t runs = 0;          // DevicePageRun [runs]
  size_t parts = 0;         // DevicePart [part_rounds][wide_blocks]: of wide tiles (part_schedule.h)
  size_t merges = 0;        // DeviceMerge [merges]
  size_t bytes = 0;

  bool operator==(const PlanOffsets&) const = default;
};

// How rows are cut into tiles; a tile's rows belong to one sequence.
struct TileRule {
  int narrow_rows = 1;       // of a tile
  int wide_rows = 1;         // likewise
  int most_narrow_rows = 0;  // sequences with more rows are wide
  int wide_heads = 1;        // KV heads: a wide tile is an item of each
  int wide_blocks = 0;       // that share all items; 0: who takes what is not to be planned
};

struct PlanSizes {
  int rows = 0;
  int outputs = 0;
  int shifts = 0;  // rounded up: the rows behind are of shift 0 and nobody's
  int sequences = 0;
  int most_references = 0;  // of one list
  // Tiles of sequences with few rows, and of those with many; the latter lie behind the former.
  int narrow_tiles = 0;
  int wide_tiles = 0;
  // The same of output rows: never more wide ones than of all rows.
  int narrow_output_tiles = 0;
  int wide_output_tiles = 0;
  int part_rounds = 0;  // of parts of the wide tiles; 0: blocks take tiles in turns
  int part_slots = 0;   // for partial results of them
  int merges = 0;
  // Of passes that keep attention mass; 0 in others.
  int runs = 0;
  int most_rows = 0;  // of one sequence

  bool operator==(const PlanSizes&) const = default;
};

// For a layer of which only output rows are read: their tiles in place of those of all rows.
inline PlanSizes of_outputs(PlanSizes sizes) {
  sizes.narrow_tiles = sizes.narrow_output_tiles;
  sizes.wide_tiles = sizes.wide_output_tiles;
  sizes.part_rounds = sizes.part_slots = sizes.merges = 0;
  return sizes;
}

}  // namespace rhapsode::kernels::cuda
