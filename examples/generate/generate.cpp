#include "generate.h"

#include <algorithm>
#include <optional>
#include <span>

#include "attention.h"
#include "cache.h"
#include "sampler.h"

namespace gemma {
namespace {

using Clock = std::chrono::steady_clock;

// The most tokens of which keys and values are needed.
std::int64_t length_of(const Request& request) {
    return static_cast<std::int64_t>(request.prompt.size()) + request.new_tokens;
}

// Pages that suffice whichever requests run at once, and room for the longest of them.
KeyValueCache cache_for(const Model& model, const std::vector<Request>& requests, std::size_t places) {
    std::vector<std::int64_t> lengths;
    for (const auto& request : requests) lengths.push_back(length_of(request));
    std::ranges::sort(lengths, std::ranges::greater{});
    std::int64_t pages = 0;
    for (std::size_t n = 0; n < places; ++n) pages += KeyValueCache::pages_for(lengths[n]);
    return {model.config(), static_cast<std::int64_t>(places), pages, lengths.front(), model.dtype()};
}

class Batch {
public:
    Batch(const Model& model, Threads& threads, const std::vector<Request>& requests, const Settings& settings)
        : model_(model),
          requests_(requests),
          settings_(settings),
          places_(std::min(static_cast<std::size_t>(settings.places), requests.size())),
          cache_(cache_for(model, requests, places_.size())),
          attention_(model.config(), threads, cache_),
          results_(requests.size()) {}

    bool is_done() const { return finished_ == requests_.size(); }

    void run_step(Statistics& statistics) {
        const auto start = Clock::now();
        const auto attention_before = attention_.time();
        admit();
        const bool has_prompt =
            std::ranges::any_of(places_, [](const auto& place) { return place && place->in_prompt(); });
        auto& part = has_prompt ? statistics.prefill : statistics.decode;
        const auto step = next_step(part);
        part.new_tokens += static_cast<std::int64_t>(step.wanted.size());
        take_tokens(step, model_.logits(step, attention_));
        ++part.steps;
        part.attention += attention_.time() - attention_before;
        part.time += Clock::now() - start;
    }

    std::vector<std::vector<std::int32_t>> results() && { return std::move(results_); }

private:
    // A request that has a place.
    struct Running {
        std::size_t number;
        const Request& request;
        Sampler sampler;
        std::vector<std::int32_t> tokens;  // the prompt, then the new ones
        std::size_t in_cache = 0;          // how many of them have their keys and values there

        bool in_prompt() const { return in_cache < request.prompt.size(); }
        std::size_t new_tokens() const { return tokens.size() - request.prompt.size(); }
    };

    void admit() {
        for (std::size_t n = 0; n < places_.size() && admitted_ < requests_.size(); ++n) {
            if (places_[n]) continue;
            const auto number = admitted_++;
            const auto& request = requests_[number];
            const Sampler sampler(settings_.temperature, settings_.seed + number);
            places_[n].emplace(Running{number, request, sampler, request.prompt});
            cache_.take(n, length_of(request));
        }
    }

    // Places take prompt tokens in turn until the chunk is full. A place that got all its tokens wants the logits.
    Step next_step(Statistics::Part& part) const {
        Step step;
        auto room = static_cast<std::size_t>(settings_.chunk);
        for (const auto& place : places_) {
            if (!place) {
                step.append(0, {}, false);
                continue;
            }
            const auto rest = std::span(place->tokens).subspan(place->in_cache);
            auto count = rest.size();
            if (place->in_prompt()) {
                count = std::min(count, room);
                room -= count;
                part.prompt_tokens += static_cast<std::int64_t>(count);
            }
            step.append(static_cast<std::int32_t>(place->in_cache), rest.first(count), count == rest.size());
        }
        return step;
    }

    void take_tokens(const Step& step, std::span<const float> logits) {
        const auto vocabulary = static_cast<std::size_t>(model_.config().vocabulary);
        for (std::size_t n = 0; n < places_.size(); ++n) {
            auto& place = places_[n];
            if (!place) continue;
            place->in_cache = static_cast<std::size_t>(step.after[n]);
            if (place->in_cache < place->tokens.size()) continue;
            const auto token = place->sampler(logits.first(vocabulary));
            logits = logits.subspan(vocabulary);
            const bool is_end = settings_.stop_at_last_token && token == model_.config().last_token;
            if (!is_end) place->tokens.push_back(token);
            if (is_end || place->new_tokens() == static_cast<std::size_t>(place->request.new_tokens)) leave(n);
        }
    }

    void leave(std::size_t n) {
        auto& place = places_[n];
        const auto& tokens = place->tokens;
        const auto prompt = static_cast<std::ptrdiff_t>(place->request.prompt.size());
        results_[place->number].assign(tokens.begin() + prompt, tokens.end());
        place.reset();
        cache_.give_back(n);
        ++finished_;
    }

    const Model& model_;
    const std::vector<Request>& requests_;
    const Settings& settings_;
    std::vector<std::optional<Running>> places_;
    KeyValueCache cache_;
    Attention attention_;
    std::vector<std::vector<std::int32_t>> results_;
    std::size_t admitted_ = 0, finished_ = 0;
};

}  // namespace

std::vector<std::vector<std::int32_t>> generate(const Model& model, Threads& threads,
                                                const std::vector<Request>& requests, const Settings& settings,
                                                Statistics& statistics) {
    Batch batch(model, threads, requests, settings);
    while (!batch.is_done()) batch.run_step(statistics);
    return std::move(batch).results();
}

}  // namespace gemma
