// single_flight.h: of many threads that want the same thing made at the same time, one makes it and all get it, or an
// error of the same words. Nothing is remembered once it is made.
#pragma once

#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "core/error.h"

namespace flashtile::gpu {

template <class Value>
class SingleFlight {
public:
    template <class Make>
    Value run(const std::string& key, Make make) {
        std::promise<Outcome> promise;
        std::shared_future<Outcome> result;
        bool mine = false;
        {
            const std::lock_guard lock(mutex_);
            const auto [place, fresh] = flights_.try_emplace(key);
            if (fresh) place->second = promise.get_future().share();
            result = place->second;
            mine = fresh;
        }
        if (mine) {
            try {
                promise.set_value({.value = make()});
            } catch (const Error& error) {
                promise.set_value({.status = error.status(), .message = error.what()});
            } catch (...) {
                promise.set_exception(std::current_exception());
            }
            const std::lock_guard lock(mutex_);
            flights_.erase(key);
        }
        const Outcome& outcome = result.get();
        if (!outcome.value) throw Error(outcome.status, outcome.message);
        return *outcome.value;
    }

private:
    // An error travels as its words: each thread throws one of its own, and none looks at another's.
    struct Outcome {
        std::optional<Value> value{};
        flashtile_status status = FLASHTILE_OK;
        std::string message{};
    };

    std::mutex mutex_;
    std::map<std::string, std::shared_future<Outcome>> flights_;
};

}  // namespace flashtile::gpu
