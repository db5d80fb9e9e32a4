// Autograd's device threads, as far as the end of the process concerns them.
#pragma once

namespace halyard_torch {

// Called where the engine sets a node's stream: remembers that a backward has run on a device.
void note_backward() noexcept;

// Waits until autograd's threads hold nothing of an earlier backward, for at most 10 s; false where
// they may. Call it without Python's GIL.
bool settle_autograd() noexcept;

}  // namespace halyard_torch
