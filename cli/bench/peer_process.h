// peer_process.h: another project's attention in a child process: a Python program of tools/ that computes only when
// asked, so that its timings alternate with ours. tools/bench_peer.py describes the protocol.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/python.h"
#include "numbers.h"

namespace flashtile::cli::bench {

// A folder for tensors on their way to the child process and back, removed at the end.
class ExchangeFolder {
public:
    ExchangeFolder();
    ~ExchangeFolder();
    ExchangeFolder(const ExchangeFolder&) = delete;
    ExchangeFolder& operator=(const ExchangeFolder&) = delete;

    std::string path() const { return path_.string(); }
    void write(const char* name, const Numbers& numbers) const;
    std::vector<float> read(const char* name, std::int64_t count) const;

private:
    std::filesystem::path path_;
};

class PeerProcess {
public:
    // `peer` is torch or openvino, and `product` its name in sentences. Starts tools/bench_PEER.py; throws
    // std::runtime_error, saying what to install, where Python lacks what that imports.
    PeerProcess(const std::string& peer, std::string product);

    // Throws std::runtime_error where the answer is a failure.
    nlohmann::json ask(const nlohmann::json& request);

    std::string version() const { return greeting_.at("version").get<std::string>(); }
    std::string capability() const { return greeting_.at("capability").get<std::string>(); }
    const ExchangeFolder& folder() const { return folder_; }

private:
    std::string product_;
    ExchangeFolder folder_;
    LineProcess process_;
    nlohmann::json greeting_;
};

}  // namespace flashtile::cli::bench
