// peer_method.cpp: see peer_method.h.
#include "bench/peer_method.h"

#include <utility>

namespace flashtile::cli::bench {

PeerMethod::PeerMethod(std::shared_ptr<PeerProcess> process, std::string name)
    : process_(std::move(process)), name_(std::move(name)) {}

void PeerMethod::prepare(const Point& point, const Inputs& inputs) {
    point_ = point;
    const ExchangeFolder& folder = process_->folder();
    folder.write("q", inputs.q);
    folder.write("k", inputs.k);
    folder.write("v", inputs.v);
    if (has_backward(point.pass)) folder.write("dout", inputs.dout);
    process_->ask({{"op", "prepare"},
                   {"method", name_},
                   {"pass", bench::name_of(point.pass)},
                   {"dtype", bench::name_of(point.dtype)},
                   {"batch", point.batch},
                   {"heads", point.heads},
                   {"kv_heads", point.kv_heads},
                   {"seqlen_q", point.rows_q()},
                   {"seqlen", point.seqlen},
                   {"head_dim", point.head_dim},
                   {"causal", point.causal},
                   {"threads", point.threads},
                   {"folder", folder.path()}});
}

double PeerMethod::run(int count) {
    return process_->ask({{"op", "run"}, {"method", name_}, {"count", count}}).at("seconds").get<double>();
}

Results PeerMethod::results() {
    const ExchangeFolder& folder = process_->folder();
    process_->ask({{"op", "save"}, {"method", name_}, {"folder", folder.path()}});
    Results r;
    r.out = folder.read("out", point_.q_size());
    if (!has_backward(point_.pass)) return r;
    r.dq = folder.read("dq", point_.q_size());
    r.dk = folder.read("dk", point_.kv_size());
    r.dv = folder.read("dv", point_.kv_size());
    return r;
}

void PeerMethod::release() {
    process_->ask({{"op", "release"}});
}

}  // namespace flashtile::cli::bench
