// Page blocks in the memories of several devices: one region each, of equal size.
//
// Every copy goes to the memory that its address on the device lies in, copies to several devices at once; a
// block that moves from one device to another goes through the host. Ownership: owns the memories. Threads,
// errors: as page_memory.h.
#pragma once

#include <memory>
#include <vector>

#include "kernels/page_memory.h"

namespace rhapsode::kernels {

// `memories`: of the devices, in their order; none of them reserved yet.
std::unique_ptr<PageMemory> sharded_page_memory(std::vector<std::unique_ptr<PageMemory>> memories);

}  // namespace rhapsode::kernels
