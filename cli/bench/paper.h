// paper.h: `bench paper`: the papers' figures and tables on this machine, in one folder.
#pragma once

#include "bench/options.h"

namespace flashtile::cli::bench {

// As run() of run.h. Writes results.json into options.folder, and has tools/plot_paper.py draw the figures and the
// page.
int run_paper(const Options& options);

}  // namespace flashtile::cli::bench
