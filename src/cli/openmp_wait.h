// How long ggml's OpenMP threads spin at a barrier before they sleep.
//
// libgomp's default is milliseconds. A pass has hundreds of barriers, so on a machine where anything else
// runs, threads that spin keep the one they wait for off its core: measured with three busy processes on two
// cores, generation was 2.7 times as fast with a short spin, and equally fast on an idle machine
// (docs/results.md). libgomp reads the setting when it is loaded, before main(), so the program sets it and
// starts itself anew.
#pragma once

namespace rhapsode::cli {

// Returns when the setting is in place, or the user's own is, or starting anew is not possible here.
void shorten_openmp_spin(char** argv);

}  // namespace rhapsode::cli
