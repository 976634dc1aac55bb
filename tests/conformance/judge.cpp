// judge.cpp: forward, then backward from the library's own out and lse, as a user would.
#include "conformance/judge.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "conformance/problem_data.h"
#include "oracle/attention.h"

namespace flashtile::conformance {
namespace {

constexpr std::int64_t kWidestEverywhere = 256;  // the widest head that every GPU must take

oracle::Precision precision_of(dtype type) {
    return type == fp32 ? oracle::Precision::fp32 : type == fp16 ? oracle::Precision::fp16 : oracle::Precision::bf16;
}

// The values whose flag is set.
std::vector<double> only(const std::vector<double>& values, const std::vector<bool>& flags) {
    std::vector<double> result;
    for (std::size_t n = 0; n < values.size(); ++n)
        if (flags[n]) result.push_back(values[n]);
    return result;
}

class Judge {
public:
    Judge(const Case& problem, const Target& target, Passes passes)
        : case_(problem), target_(target), data_(problem, target.where), precision_(precision_of(problem.type)) {
        const auto pass = passes == Passes::both ? oracle::Pass::forward_and_backward : oracle::Pass::forward;
        for (const double value : data_.reference.v)
            if (std::abs(value) > oracle::largest_value(std::max<std::int64_t>(problem.longest_k(), 1)))
                fault("v is " + std::to_string(value) + ", for which no finite result is promised");
        exact_ = oracle::exact_attention(data_.reference, pass);
        standard_ = oracle::standard_attention(data_.reference, precision_, pass);
        if (data_.reference.rows_q * data_.reference.heads <= kFewRows)
            for (int order = 1; order < 2 * kOrders; ++order)
                other_orders_.push_back(standard_in_another_order(data_.reference, order, precision_, pass));
    }

    Verdict run(Passes passes) {
        if (ran([this] { forward(); }) && passes == Passes::both) ran([this] { backward(); });
        return std::move(verdict_);
    }

private:
    // The error of standard attention on a few rows is a matter of luck. There it is the largest of several that differ
    // in nothing but how the products of q.k are summed: in which order, and fused or not.
    static constexpr std::int64_t kFewRows = 512;
    static constexpr int kOrders = 8;

    static oracle::Result standard_in_another_order(oracle::Problem problem, int order, oracle::Precision precision,
                                                    oracle::Pass pass) {
        const std::int64_t d = problem.head_dim, middle = order % kOrders / 2 * d * 2 / kOrders;
        const bool reversed = order % 2 != 0, fused = order >= kOrders;
        const auto each_row = [&](std::vector<double>& x, auto permute) {
            for (auto row = x.begin(); row != x.end(); row += d) permute(row);
        };
        const auto forth = [&](auto row) {
            std::rotate(row, row + middle, row + d);
            if (reversed) std::reverse(row, row + d);
        };
        const auto back = [&](auto row) {
            if (reversed) std::reverse(row, row + d);
            std::rotate(row, row + (d - middle), row + d);
        };
        each_row(problem.q, forth);
        each_row(problem.k, forth);
        oracle::Result result = oracle::standard_attention(problem, precision, pass, fused);
        each_row(result.dq, back);
        each_row(result.dk, back);
        return result;
    }

    // Runs a pass. A GPU need not have the shared memory for wide heads; it may then refuse, before it writes anything.
    template <class Pass>
    bool ran(Pass pass) {
        try {
            pass();
            return true;
        } catch (const flashtile::error& e) {
            const bool wide = std::max(case_.head_dim, case_.head_dim_v) > kWidestEverywhere;
            if (!target_.on_gpu() || !wide || e.code() != status::unsupported) throw;
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
                                                                 data_.v.view(), data_.out.view(), data_.lse.view()));
        bring(workspace, options);
        data_.forward(options);
        check_ran("forward");
        check_workspace(workspace, "forward");
        const auto owned = data_.owned_q(case_.heads * case_.head_dim_v);
        compare("out", data_.out, exact_.out, &oracle::Result::out, owned, precision_, 0.0);
        const auto rows = data_.owned_q(case_.heads);
        const double allowed = oracle::allowed_lse_error(exact_.largest_score, exact_.largest_lse);
        verdict_.comparisons.push_back(
            {"lse", oracle::error_of(only(data_.lse_by_row(), rows), only(exact_.lse, rows)), {allowed, allowed}});
        check_poison("lse", data_.lse, data_.owned_lse());
        check_inputs("forward");
        data_.out.remember();
        data_.lse.remember();
    }

    void backward() {
        flashtile::options options = data_.options(target_.which);
        GuardedTensor workspace = workspace_of(
            backward_workspace(options, data_.q.view(), data_.k.view(), data_.v.view(), data_.gradients()));
        bring(workspace, options);
        data_.backward(options);
        check_ran("backward");
        check_workspace(workspace, "backward");
        const auto& e = exact_;
        const auto of_ds = [&](double terms, double from_out) {
            return oracle::gradient_roundoff(terms, e.largest_lse, true, from_out, precision_);
        };
        compare("dq", data_.dq, e.dq, &oracle::Result::dq, data_.owned_q(case_.heads * case_.head_dim), precision_,
                of_ds(e.largest_dq_terms, e.largest_dq_from_out));
        compare("dk", data_.dk, e.dk, &oracle::Result::dk, data_.owned_k(case_.kv_heads * case_.head_dim), precision_,
                of_ds(e.largest_dk_terms, e.largest_dk_from_out));
        compare("dv", data_.dv, e.dv, &oracle::Result::dv, data_.owned_k(case_.kv_heads * case_.head_dim_v), precision_,
                oracle::gradient_roundoff(e.largest_dv_terms, e.largest_lse, false, 0.0, precision_));
        if (data_.dbias.present())
            compare("dbias", data_.dbias, e.dbias, &oracle::Result::dbias, std::vector<bool>(e.dbias.size(), true),
                    case_.bias_in_fp32 ? oracle::Precision::fp32 : precision_,
                    of_ds(e.largest_dbias_terms, e.largest_dbias_from_out));
        check_inputs("backward");
        if (!data_.out.unchanged()) fault("backward changed out");
        if (!data_.lse.unchanged()) fault("backward changed lse");
    }

    void compare(const char* name, const GuardedTensor& ours, const std::vector<double>& exact,
                 std::vector<double> oracle::Result::*standard, const std::vector<bool>& owned,
                 oracle::Precision precision, double roundoff) {
        const std::vector<double> reference = only(exact, owned);
        oracle::Error standard_error = oracle::error_of(only(standard_.*standard, owned), reference);
        for (const oracle::Result& result : other_orders_) {
            const oracle::Error other = oracle::error_of(only(result.*standard, owned), reference);
            standard_error = {std::max(standard_error.max, other.max), std::max(standard_error.rms, other.rms)};
        }
        if (!std::isfinite(standard_error.max))
            fault(std::string(name) + ": standard attention itself overflows, so the case gives no bound");
        verdict_.comparisons.push_back({name, oracle::error_of(only(ours.values(), owned), reference),
                                        oracle::allowed_error(standard_error, reference, precision, roundoff)});
        check_poison(name, ours, owned);
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
    oracle::Precision precision_;
    oracle::Result exact_, standard_;
    std::vector<oracle::Result> other_orders_;  // of few rows only
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

Verdict judge(const Case& problem, const Target& target, Passes passes) {
    return Judge(problem, target, passes).run(passes);
}

}  // namespace flashtile::conformance
