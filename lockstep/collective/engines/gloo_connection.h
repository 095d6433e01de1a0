#pragma once

#include <memory>

#include "lockstep/collective/engine_plugin.h"
#include "lockstep/collective/engines/watch.h"

namespace gloo {
class Context;
}

namespace lockstep {

// Note [waits in Gloo]
// A wait of Gloo's ends when its message is through, or when the connection breaks while the operation is still queued. It
// does not end when the connection breaks in the middle of the message, and Gloo's collectives do not ask whether a wait
// was ended from outside. A wait that runs into its timeout closes every connection, so waits cannot be cut into short
// ones either. Therefore:
//   1. One thread, in look_out(), awaits from each peer a message that nobody ever sends. Such a wait is always queued, so
//      it ends when the connection breaks; the thread tells the watch whose it was.
//   2. The watch wakes all who wait; the same when the engine is stopped.
//   3. A wait that was ended looks at the watch: it throws if the engine is stopped; if its peer is gone, it asks Gloo
//      once more, without waiting, since the message may have come just before the end; else it goes on.
// So a peer that has done its part of a call may leave while others are still in it: that is no error for those who have
// nothing more to say to it.

// A connection to every other rank, over TCP. All memory that is sent from or received into must come from the context's
// createUnboundBuffer, and a buffer must have one peer to send to and one to receive from: then every wait ends with an
// Error when the watch is stopped or the peer is gone (kUnavailable). Waits know no other time limit.
// Throws as make_engine does.
std::shared_ptr<gloo::Context> connect_gloo(const EngineSetup& setup, Watch& watch);

// Tells the watch of every peer that is gone, until the watch is stopped.
void look_out(gloo::Context& context, Watch& watch) noexcept;

}  // namespace lockstep
