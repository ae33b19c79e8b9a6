// Finding over codes that lie on several devices: each searches its share, and the best of all are the best.
//
// A passage's codes go to the device that has the fewest chunks, so that reading them takes all devices
// equally long. A score depends on the passage alone, hence results are those of one device, bit for bit.
// Ownership: owns the searches. Threads, errors: as code_search.h; a device's error is the search's. Cost:
// that of the slowest device.
#pragma once

#include <memory>
#include <vector>

#include "kernels/code_search.h"

namespace rhapsode::kernels {

// `shares`: of the devices, in their order, and empty.
std::unique_ptr<CodeSearch> sharded_code_search(std::vector<std::unique_ptr<CodeSearch>> shares);

}  // namespace rhapsode::kernels
