// Launchers with the mistakes that a launcher can make.
#pragma once
#include "plancap/capture/sink.h"

namespace sdm::testing {

// Launches odd_layout twice: the second launch would be missing from the plan.
void launches_twice(plancap::Sink& sink, const TensorRef& out);

// Returns without a launch.
void launches_nothing(plancap::Sink& sink, const TensorRef& out);

// Throws after its checks, before its launch.
void throws_before_launch(plancap::Sink& sink, const TensorRef& out);

// Describes its parameter block wrongly.
void names_unknown_field(plancap::Sink& sink, const TensorRef& out);
void asks_odd_alignment(plancap::Sink& sink, const TensorRef& out);
void starts_past_operand(plancap::Sink& sink, const TensorRef& out);

}  // namespace sdm::testing
