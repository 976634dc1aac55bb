// single_flight.h: of many threads that want the same thing made at the same time, one makes it and all get it, or its
// exception. Nothing is remembered once it is made.
#pragma once

#include <future>
#include <map>
#include <mutex>
#include <string>

namespace flashtile::gpu {

template <class Value>
class SingleFlight {
public:
    template <class Make>
    Value run(const std::string& key, Make make) {
        std::promise<Value> promise;
        std::shared_future<Value> result;
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
                promise.set_value(make());
            } catch (...) {
                promise.set_exception(std::current_exception());
            }
            const std::lock_guard lock(mutex_);
            flights_.erase(key);
        }
        return result.get();
    }

private:
    std::mutex mutex_;
    std::map<std::string, std::shared_future<Value>> flights_;
};

}  // namespace flashtile::gpu
