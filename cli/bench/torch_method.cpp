// torch_method.cpp: see torch_method.h; the protocol is described in tools/bench_torch.py.
#include "bench/torch_method.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "bench/python.h"

namespace flashtile::cli::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A folder for tensors on their way to the child process and back, removed at the end.
class ExchangeFolder {
public:
    ExchangeFolder() {
        std::string name = (fs::temp_directory_path() / "flashtile-bench-XXXXXX").string();
        if (!mkdtemp(name.data())) throw std::runtime_error(fmt::format("{} cannot be created", name));
        path_ = name;
    }
    ~ExchangeFolder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    ExchangeFolder(const ExchangeFolder&) = delete;
    ExchangeFolder& operator=(const ExchangeFolder&) = delete;

    std::string path() const { return path_.string(); }

    void write(const char* name, const Numbers& numbers) const {
        std::ofstream file(path_ / name, std::ios::binary);
        file.write(static_cast<const char*>(numbers.data()), static_cast<std::streamsize>(numbers.bytes()));
        if (!file.flush()) throw std::runtime_error(fmt::format("{} cannot be written", (path_ / name).string()));
    }

    std::vector<float> read(const char* name, std::int64_t count) const {
        std::vector<float> values(static_cast<std::size_t>(count));
        std::ifstream file(path_ / name, std::ios::binary);
        file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
        if (!file) throw std::runtime_error(fmt::format("{} cannot be read", (path_ / name).string()));
        return values;
    }

private:
    fs::path path_;
};

}  // namespace

class TorchProcess {
public:
    TorchProcess() : process_({python_interpreter(), tool_path("bench_torch.py")}) {
        try {
            greeting_ = json::parse(process_.read_line());
        } catch (const std::exception&) {
            throw std::runtime_error(fmt::format(
                "--against=torch needs PyTorch in {}; install it with: pip install -r tools/requirements.txt, or set "
                "FLASHTILE_PYTHON",
                python_interpreter()));
        }
    }

    json ask(const json& request) {
        process_.write_line(request.dump());
        json answer = json::parse(process_.read_line());
        if (!answer.at("ok").get<bool>()) throw std::runtime_error("PyTorch: " + answer.at("error").get<std::string>());
        return answer;
    }

    const json& greeting() const { return greeting_; }
    const ExchangeFolder& folder() const { return folder_; }

private:
    ExchangeFolder folder_;
    LineProcess process_;
    json greeting_;
};

namespace {

class Torch final : public Method {
public:
    Torch(std::shared_ptr<TorchProcess> process, std::string name)
        : process_(std::move(process)), name_(std::move(name)) {}

    std::string name() const override { return name_; }
    std::string isa(const Point&) const override { return process_->greeting().at("capability").get<std::string>(); }

    std::string why_not(const Point& point) const override {
        if (point.page_size != 0) return "it takes no pages";
        if (name_ != "torch_standard") return "";
        // Scores, masked scores and P, in the inputs' type; autograd keeps P and makes dP and dS.
        const double matrices = has_backward(point.pass) ? 5 : 3;
        const double needed = matrices * point.score_bytes() * (point.dtype == flashtile::fp32 ? 1.0 : 0.5);
        if (needed <= memory_to_use()) return "";
        return fmt::format("its score matrices take {:.1f} GiB, {:.1f} GiB may be used", needed / (1 << 30),
                           memory_to_use() / (1 << 30));
    }

    void prepare(const Point& point, const Inputs& inputs) override {
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

    double run(int count) override {
        return process_->ask({{"op", "run"}, {"method", name_}, {"count", count}}).at("seconds").get<double>();
    }

    Results results() override {
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

    void release() override { process_->ask({{"op", "release"}}); }

private:
    std::shared_ptr<TorchProcess> process_;
    std::string name_;
    Point point_;
};

}  // namespace

std::shared_ptr<TorchProcess> start_torch() {
    return std::make_shared<TorchProcess>();
}

std::string torch_version(const TorchProcess& process) {
    return process.greeting().at("torch").get<std::string>();
}

std::unique_ptr<Method> make_torch(std::shared_ptr<TorchProcess> process, const std::string& name) {
    return std::make_unique<Torch>(std::move(process), name);
}

}  // namespace flashtile::cli::bench
