// gpu_problem.cpp: see gpu_problem.h.
#include "tune/gpu_problem.h"

#include <functional>
#include <numeric>

namespace flashtile::cli::tune {
namespace {

constexpr std::byte kPoison{0xFF};  // a NaN in every floating-point type

}  // namespace

GpuProblem::GpuProblem(const options& wanted, const ShapeOptions& s, dtype type, int ordinal, Pass pass)
    : options_(wanted),
      type_(type),
      ordinal_(ordinal),
      pass_(pass),
      stream_(ordinal),
      before_(ordinal),
      after_(ordinal),
      q_(random({s.batch, s.seqlen_q, s.heads, s.head_dim}, 1)),
      k_(random({s.batch, s.seqlen_k, s.kv_heads, s.head_dim}, 2)),
      v_(random({s.batch, s.seqlen_k, s.kv_heads, s.head_dim_v}, 3)),
      out_(output({s.batch, s.seqlen_q, s.heads, s.head_dim_v})),
      lse_(make(Numbers(fp32, s.batch * s.heads * s.seqlen_q), {s.batch, s.heads, s.seqlen_q})) {
    options_.stream = stream_.handle();
    if (pass == Pass::forward) return;
    dout_ = random({s.batch, s.seqlen_q, s.heads, s.head_dim_v}, 4);
    dq_ = output({s.batch, s.seqlen_q, s.heads, s.head_dim});
    dk_ = output({s.batch, s.seqlen_k, s.kv_heads, s.head_dim});
    dv_ = output({s.batch, s.seqlen_k, s.kv_heads, s.head_dim_v});
    submit_forward();
    stream_.synchronize();
}

GpuProblem::OnGpu GpuProblem::make(Numbers numbers, std::initializer_list<std::int64_t> shape) const {
    OnGpu made{std::move(numbers), {}, {}};
    made.buffer = gpu_resources::Buffer(made.host.bytes(), ordinal_);
    made.view = flashtile::view(made.buffer.data(), made.host.dtype(), shape, cuda(ordinal_));
    return made;
}

GpuProblem::OnGpu GpuProblem::random(std::initializer_list<std::int64_t> shape, std::uint64_t seed) const {
    const std::int64_t count = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    OnGpu made = make(random_numbers(type_, count, seed), shape);
    made.buffer.upload({static_cast<const std::byte*>(made.host.data()), made.host.bytes()});
    made.host = {};
    return made;
}

GpuProblem::OnGpu GpuProblem::output(std::initializer_list<std::int64_t> shape) const {
    const std::int64_t count = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    return make(Numbers(type_, count), shape);
}

std::vector<float> GpuProblem::download(OnGpu& from) {
    from.buffer.download({static_cast<std::byte*>(from.host.data()), from.host.bytes()});
    return from.host.as_floats();
}

void GpuProblem::submit_forward() {
    forward(options_, q_.view, k_.view, v_.view, out_.view, lse_.view);
}

void GpuProblem::submit_backward() {
    const backward_args args{
        .out = out_.view, .lse = lse_.view, .dout = dout_.view, .dq = dq_.view, .dk = dk_.view, .dv = dv_.view};
    options o = options_;
    o.workspace_size = backward_workspace(o, q_.view, k_.view, v_.view, args);
    if (workspaces_.empty() || workspaces_.back().size() < o.workspace_size)
        workspaces_.emplace_back(o.workspace_size, ordinal_);
    o.workspace = workspaces_.back().data();
    backward(o, q_.view, k_.view, v_.view, args);
}

void GpuProblem::submit() {
    if (pass_ == Pass::forward)
        submit_forward();
    else
        submit_backward();
}

Results GpuProblem::results() {
    Results results;
    if (pass_ == Pass::forward) {
        out_.buffer.fill(kPoison);
        submit();
        stream_.synchronize();
        results.out = download(out_);
    } else {
        for (OnGpu* gradient : {&dq_, &dk_, &dv_}) gradient->buffer.fill(kPoison);
        submit();
        stream_.synchronize();
        results.dq = download(dq_);
        results.dk = download(dk_);
        results.dv = download(dv_);
    }
    return results;
}

std::function<double()> GpuProblem::sampler() {
    const int runs = runs_of_a_sample(milliseconds(*graph(1)));
    return [this, runs, several = graph(runs)] { return milliseconds(*several) / runs; };
}

std::shared_ptr<const gpu_resources::Graph> GpuProblem::graph(int runs) {
    return std::make_shared<const gpu_resources::Graph>(stream_, [&] {
        for (int n = 0; n < runs; ++n) submit();
    });
}

double GpuProblem::milliseconds(const gpu_resources::Graph& graph) {
    graph.launch(stream_);
    before_.record(stream_);
    graph.launch(stream_);
    after_.record(stream_);
    after_.synchronize();
    return static_cast<double>(after_.milliseconds_since(before_));
}

}  // namespace flashtile::cli::tune
