// What this machine can do at most, measured in the same run as the ops that are compared with it.
//
// Read bandwidth: every thread sums its own part of a buffer far larger than the last-level cache. FMA peak:
// every thread keeps enough independent float32 multiply-adds in flight; the best instruction set of the CPU
// is used. Both are the best of several short tries. Cost: about half a second a call.
#pragma once

namespace rhapsode::bench {

class ThreadTeam;

struct MachinePeak {
  double read_gb_per_s = 0.0;  // 10^9 bytes
  double gflop_per_s = 0.0;    // a multiply-add counts as two
};

MachinePeak measure_machine_peak(ThreadTeam& team);

}  // namespace rhapsode::bench
