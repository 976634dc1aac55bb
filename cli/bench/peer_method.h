// peer_method.h: a method of the benchmark whose work a PeerProcess does. What is the same for all of them.
#pragma once

#include <memory>
#include <string>

#include "bench/method.h"
#include "bench/peer_process.h"

namespace flashtile::cli::bench {

class PeerMethod : public Method {
public:
    PeerMethod(std::shared_ptr<PeerProcess> process, std::string name);

    std::string name() const override { return name_; }
    std::string isa(const Point&) const override { return process_->capability(); }
    void prepare(const Point& point, const Inputs& inputs) override;
    double run(int count) override;
    Results results() override;
    void release() override;

private:
    std::shared_ptr<PeerProcess> process_;
    std::string name_;
    Point point_;
};

}  // namespace flashtile::cli::bench
