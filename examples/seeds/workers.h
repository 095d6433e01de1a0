#pragma once

#include "page.h"

// Blocks that the pages of both multi-worker strategies have in common. All workers call them.

namespace seeds {

void what_tf_config_says();
void fit_on_all_workers(ls::Strategy& strategy);
void train_on_all_workers(ls::Strategy& strategy);

}  // namespace seeds
