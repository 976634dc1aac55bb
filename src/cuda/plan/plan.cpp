// plan.cpp: the candidates of each pass in their order, and the first that serves.
#include "cuda/plan/plan.h"

#include <algorithm>

#include "cuda/plan/append_kv.h"
#include "cuda/plan/block_kinds.h"
#include "cuda/plan/candidate.h"
#include "cuda/plan/forward_launches.h"
#include "cuda/plan/limits.h"
#include "cuda/tuned_tile.h"

namespace flashtile::gpu {
namespace {

// From the most special to the most general.
constexpr const Candidate* kForward[] = {&latent_forward_sm90, &split_forward_sm80, &forward_sm90, &forward_sm80};
constexpr const Candidate* kBackward[] = {&backward_sm90, &backward_sm80};

// What forward appends before it attends.
void add_append(const Problem& p, const Access& access, const DeviceFacts& device, Plan& plan) {
    plan.launches.push_back(plan_append(p.append, access.append_bytes, device));
    if (p.rotates_q_aside)
        plan.workspace.add(Region::rotated_q,
                           static_cast<std::size_t>(p.append.rows_q * p.heads * p.head_dim * size_of(p.dtype)));
}

Plan plan_of(std::span<const Candidate* const> candidates, const char* pass, const Question& question,
             TunedTiles tuned) {
    Plan plan;
    const Candidate* serving = nullptr;
    for (const Candidate* candidate : candidates) {
        if (serving != nullptr) {
            plan.passed_over.push_back({candidate->name, "a more special one serves"});
            continue;
        }
        if (const std::string_view reason = why_passed_over(*candidate, question); !reason.empty()) {
            plan.passed_over.push_back({candidate->name, reason, true});
            continue;
        }
        const std::optional<Launch> main = candidate->main(question);
        if (!main) {
            plan.passed_over.push_back({candidate->name, "none of its tiles fits the GPU's shared memory", true});
            continue;
        }
        serving = candidate;
        plan.name = candidate->name;
        if (const Problem& p = question.problem; p.appends) add_append(p, question.access, question.device, plan);
        add_block_kinds(question, plan);
        plan.main_launch = plan.launches.size();
        candidate->complete(question, measured_or(*main, question.problem, question.device, tuned), plan);
    }
    if (serving == nullptr) throw NoCandidate(no_room(question.problem, question.device, pass), plan.passed_over);
    return plan;
}

}  // namespace

void PlannedWorkspace::add(Region name, std::size_t size, bool cleared) {
    const std::size_t offset = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    regions.push_back({name, offset, size, cleared});
    bytes = offset + size;
}

const PlannedRegion* PlannedWorkspace::find(Region name) const {
    const PlannedRegion* const found =
        std::ranges::find_if(regions, [&](const PlannedRegion& region) { return region.name == name; });
    return found != regions.end() ? found : nullptr;
}

const Launch* Plan::find(Kernel kernel) const {
    const Launch* const found =
        std::ranges::find_if(launches, [&](const Launch& launch) { return launch.config.kernel == kernel; });
    return found != launches.end() ? found : nullptr;
}

Plan plan_forward(const Problem& p, const Access& access, const DeviceFacts& device, TunedTiles tuned) {
    check_limits(p, device);
    return plan_of(kForward, "forward", question_of(p, access, device), tuned);
}

Plan plan_backward(const Problem& p, const Access& access, const DeviceFacts& device, TunedTiles tuned) {
    check_limits(p, device);
    check_backward_limits(p);
    if (access.dtensors && p.deterministic)
        unsupported("dtensors is given with deterministic, which on CUDA add up in no fixed order; the CPU has one");
    Question question = question_of(p, access, device);
    question.config.sinks = false;  // LSE counts them, and so no gradient but their own knows of them
    return plan_of(kBackward, "backward", question, tuned);
}

Plan plan_dropout_mask(const Problem& p, const DeviceFacts& device) {
    check_limits(p, device);
    KernelConfig c;
    c.kernel = Kernel::dropout_mask;
    c.Br = 16;
    c.warps = 8;
    Plan plan;
    plan.name = "dropout_mask";
    plan.launches.push_back({.config = c, .blocks = query_blocks(p, c.Br), .why = "16 queries a block"});
    return plan;
}

std::vector<KernelConfig> configs_for(Problem problem, const Access& access, const DeviceFacts& device, Passes passes,
                                      Queries queries) {
    std::vector<KernelConfig> configs;
    const auto add = [&](const Plan& plan) {
        for (const Launch& launch : plan.launches)
            if (std::ranges::find(configs, launch.config) == configs.end()) configs.push_back(launch.config);
    };
    // Whichever candidate serves at a length, the lengths of all are asked.
    const auto lengths = [](std::span<const Candidate* const> candidates, auto of_candidate) {
        std::vector<std::int64_t> all;
        for (const Candidate* candidate : candidates)
            for (const std::int64_t length : candidate->*of_candidate)
                if (std::ranges::find(all, length) == all.end()) all.push_back(length);
        return all;
    };
    Access unmapped = access, latent = access;  // as a bias's rows may be aligned or not, and v a view of k
    unmapped.bias_map = false;
    latent.values_in_keys = problem.head_dim_v <= problem.head_dim;
    // Of some sequences there are more splits than thread blocks; more sequences may keep Hopper's own kernel busy.
    constexpr std::int64_t kSome = 16;
    const auto add_pass = [&](std::span<const Candidate* const> candidates, auto plan_pass, Queries wanted) {
        for (const std::int64_t seqlen_q : lengths(candidates, &Candidate::seqlens_q)) {
            if (wanted != Queries::any && (wanted == Queries::few) != (seqlen_q <= kFewQueries)) continue;
            for (const std::int64_t seqlen_k : lengths(candidates, &Candidate::seqlens_k))
                for (const std::int64_t batch : {std::int64_t{1}, kSome})
                    for (const Access& each : {access, unmapped, latent}) {
                        problem.seqlen_q = seqlen_q;
                        problem.seqlen_k = seqlen_k;
                        problem.batch = batch;
                        problem.total_q = batch * seqlen_q;
                        problem.total_k = batch * seqlen_k;
                        const auto add_where = [&](auto... change) {
                            Problem changed = problem;
                            (change(changed), ...);
                            add(plan_pass(changed, each, device, TunedTiles()));
                        };
                        add_where();
                        const auto short_but_one = [&](Problem& p) { p.total_q = batch; };
                        if (problem.cache && problem.packed) add_where(short_but_one);
                        if (problem.page_size == 0) continue;
                        // No option asks for prefixes, nor says how long pages are.
                        const auto prefixes = [](Problem& p) { p.prefix_groups = 1; };
                        const auto short_pages = [](Problem& p) { p.page_size = 1; };
                        add_where(prefixes);
                        add_where(short_pages);
                        add_where(short_pages, prefixes);
                    }
        }
    };
    add_pass(kForward, plan_forward, queries);
    if (passes == Passes::forward_and_backward && backward_takes(problem))
        add_pass(kBackward, plan_backward, Queries::any);
    return configs;
}

}  // namespace flashtile::gpu
