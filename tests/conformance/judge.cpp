// judge.cpp: forward, then backward from the library's own out and lse, as a user would.
#include "conformance/judge.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "conformance/problem_data.h"

namespace flashtile::conformance {
namespace {

constexpr std::int64_t kWidestEverywhere = 256;  // the widest head that every GPU must take

oracle::Pass pass_of(const Case& problem, Passes passes) {
    return passes == Passes::both && !problem.forward_only() ? oracle::Pass::forward_and_backward
                                                             : oracle::Pass::forward;
}

class Run {
public:
    Run(const Case& problem, const Target& target, const Reference& reference)
        : case_(problem), target_(target), data_(problem, target.where), reference_(reference) {
        verdict_.faults = reference.faults;
    }

    Verdict of(oracle::Pass pass) {
        if (ran([this] { forward(); }) && pass == oracle::Pass::forward_and_backward) ran([this] { backward(); });
        return std::move(verdict_);
    }

private:
    // Runs a pass. A GPU need not have the shared memory for wide heads; it may then refuse, before it writes anything.
    template <class Pass>
    bool ran(Pass pass) {
        try {
            pass();
            return true;
        } catch (const flashtile::error& e) {
            const bool may_refuse = std::max(case_.head_dim, case_.head_dim_v) > kWidestEverywhere;
            if (!target_.on_gpu() || !may_refuse || e.code() != status::unsupported) throw;
            verdict_.refused = e.what();
            data_.download();
            const bool forward_ran = !verdict_.comparisons.empty();
            for (const GuardedTensor* t : data_.outputs()) {
                if (!t->present() || (forward_ran && (t == &data_.out || t == &data_.lse))) continue;
                if (!t->poison_intact(std::vector<bool>(t->size(), false)))
                    fault("something was written before the call was refused");
            }
            return false;
        }
    }

    // Every other case brings its own workspace, with poison in it and around it.
    GuardedTensor workspace_of(std::size_t bytes) const {
        if (case_.data_seed % 2 == 0 || bytes == 0) return {};
        GuardedTensor workspace(boolean, {static_cast<std::int64_t>(bytes)}, {}, Guard::page_before, target_.where);
        workspace.upload();
        return workspace;
    }

    static void bring(const GuardedTensor& workspace, flashtile::options& options) {
        if (!workspace.present()) return;
        options.workspace = workspace.view().raw().data;
        options.workspace_size = workspace.size();
    }

    void check_workspace(GuardedTensor& workspace, const char* pass) {
        if (!workspace.present()) return;
        workspace.download();
        if (!workspace.poison_intact()) fault(std::string(pass) + " wrote outside its workspace");
    }

    void forward() {
        flashtile::options options = data_.options(target_.which);
        GuardedTensor workspace = workspace_of(forward_workspace(options, data_.q.view(), data_.k.view(),
                                                                 data_.values(), data_.out.view(), data_.lse.view()));
        bring(workspace, options);
        data_.forward(options);
        check_ran("forward");
        check_workspace(workspace, "forward");
        const Expected& out = reference_.out;
        const Expected& lse = reference_.lse;
        const double factor = adds_e4m3() ? kE4m3Sums / (8 * 0x1p-24) : 1.0;
        const double of_cuts = adds_e4m3() ? std::max(1.0, std::sqrt(static_cast<double>(case_.head_dim) / 12)) : 1.0;
        const oracle::Error allowed_of_lse{lse.allowed.max * factor * of_cuts, lse.allowed.rms * factor};
        verdict_.comparisons.push_back({"out",
                                        oracle::error_of(only(data_.out.values(), out.owned), out.exact),
                                        {out.allowed.max + out_of_short_sums(allowed_of_lse.max), out.allowed.rms}});
        check_poison("out", data_.out, out.owned);
        verdict_.comparisons.push_back(
            {"lse", oracle::error_of(only(data_.lse_by_row(), lse.owned), lse.exact), allowed_of_lse});
        check_poison("lse", data_.lse, data_.owned_lse());
        check_inputs("forward");
        data_.out.remember();
        data_.lse.remember();
    }

    // A GPU's tensor cores add up products of e4m3 numbers with 13 bits of mantissa, not 24 (docs/semantics.md). Each
    // of a score's d products is cut off at 2^-13 of the greatest magnitude that it meets, about |s| or |lse|: errors
    // that are uniform there, of which four standard deviations of the sum are 4 sqrt(d / 12) 2^-13 of one of the two,
    // and so half as many of both. The rms over rows is less than half of that.
    static constexpr double kE4m3Sums = 0x1p-12;
    bool adds_e4m3() const { return target_.on_gpu() && case_.e4m3.present && !case_.e4m3.keys_only; }

    // What that adds to an element of out. A score is off by at most what lse is allowed, e^s by that part of itself,
    // and so is the sum that e^s is divided by: together the weights of v are off by at most twice that part. Adding up
    // P V is off by another part. Weights add up to 1, so out is off by such a part of the largest v.
    double out_of_short_sums(double allowed_of_lse) const {
        if (!adds_e4m3()) return 0.0;
        double largest = 0.0;
        for (const double value : data_.reference.v)
            if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
        return (2 * allowed_of_lse + kE4m3Sums) * largest;
    }

    void backward() {
        flashtile::options options = data_.options(target_.which);
        GuardedTensor workspace = workspace_of(
            backward_workspace(options, data_.q.view(), data_.k.view(), data_.v.view(), data_.gradients()));
        bring(workspace, options);
        data_.backward(options);
        check_ran("backward");
        check_workspace(workspace, "backward");
        compare("dq", data_.dq, reference_.dq);
        compare("dk", data_.dk, reference_.dk);
        compare("dv", data_.dv, reference_.dv);
        if (data_.dsinks.present()) compare("dsinks", data_.dsinks, reference_.dsinks);
        if (data_.dbias.present()) compare("dbias", data_.dbias, reference_.dbias);
        for (std::size_t t = 0; t < data_.dtensors.size(); ++t)
            if (data_.dtensors[t].present()) compare("dtensors", data_.dtensors[t], reference_.dtensors[t]);
        check_inputs("backward");
        if (!data_.out.unchanged()) fault("backward changed out");
        if (!data_.lse.unchanged()) fault("backward changed lse");
    }

    void compare(const char* name, const GuardedTensor& ours, const Expected& expected) {
        verdict_.comparisons.push_back(
            {name, oracle::error_of(only(ours.values(), expected.owned), expected.exact), expected.allowed});
        check_poison(name, ours, expected.owned);
    }

    void check_poison(const char* name, const GuardedTensor& t, const std::vector<bool>& owned) {
        if (!t.poison_intact(owned)) fault(std::string("something was written outside ") + name);
    }

    void check_inputs(const char* pass) {
        for (const auto& [name, input] : data_.inputs())
            if (!input->unchanged()) fault(std::string(pass) + " changed " + name);
    }

    void check_ran(const char* pass) {
        verdict_.ran = last_run();
        if (!target_.on_gpu() && target_.which == isa::automatic) return;
        const std::string wanted =
            target_.on_gpu() ? "cuda " : std::string("cpu ") + isa_name(target_.which) + ' ' + pass;
        if (verdict_.ran.rfind(wanted, 0) != 0) fault("asked for '" + wanted + "', ran '" + verdict_.ran + "'");
    }

    void fault(std::string what) { verdict_.faults.push_back(std::move(what)); }

    const Case& case_;
    const Target target_;
    ProblemData data_;
    const Reference& reference_;
    Verdict verdict_;
};

}  // namespace

double Comparison::share() const {
    if (error.max == 0.0) return 0.0;
    const double share = std::max(error.max / allowed.max, error.rms / allowed.rms);
    return std::isnan(share) ? INFINITY : share;
}

bool Verdict::ok() const {
    return faults.empty() && std::all_of(comparisons.begin(), comparisons.end(), [](const auto& c) { return c.ok(); });
}

std::string Verdict::to_string() const {
    std::string text;
    for (const Comparison& c : comparisons) {
        char line[200];
        std::snprintf(line, sizeof line, "  %-5s max error %.3g (allowed %.3g), rms %.3g (allowed %.3g)%s\n",
                      c.tensor.c_str(), c.error.max, c.allowed.max, c.error.rms, c.allowed.rms,
                      c.ok() ? "" : "  WRONG");
        text += line;
    }
    for (const std::string& fault : faults) text += "  " + fault + '\n';
    if (!refused.empty()) text += "  refused: " + refused + '\n';
    return text;
}

Judge::Judge(const Case& problem, Passes passes)
    : problem_(problem), pass_(pass_of(problem, passes)), reference_(problem, pass_) {}

Verdict Judge::run_on(const Target& target) const {
    return Run(problem_, target, reference_).of(pass_);
}

Verdict judge(const Case& problem, const Target& target, Passes passes) {
    return Judge(problem, passes).run_on(target);
}

}  // namespace flashtile::conformance
