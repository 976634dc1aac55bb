// per_thread.h: an object of which each thread has one: made when it is first wanted, and destroyed when the thread has
// ended. A thread_local object is dead in destructors of others that run after its own; this one is made again there,
// so calls may come that late: from static destructors, thread_local ones, and those of pthread keys.
#pragma once

#include <limits.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace flashtile {

template <class T>
class PerThread {
public:
    static T& get() {
        if (object == nullptr) {
            object = new T;
            // Keys' destructors run after those of thread_local objects, and again for what these made anew. The main
            // thread's never run: what it has lasts to the end of the process.
            pthread_setspecific(key(), object);
        }
        return *object;
    }

private:
    static pthread_key_t key() {
        static constinit std::atomic<std::int64_t> made{-1};
        std::int64_t known = made.load(std::memory_order_acquire);
        if (known >= 0) return static_cast<pthread_key_t>(known);
        pthread_key_t fresh{};
        if (pthread_key_create(&fresh, destroy) != 0) return PTHREAD_KEYS_MAX;  // the thread's object is never freed
        if (made.compare_exchange_strong(known, fresh)) return fresh;
        pthread_key_delete(fresh);
        return static_cast<pthread_key_t>(known);
    }

    static void destroy(void* of_this_thread) {
        object = nullptr;
        delete static_cast<T*>(of_this_thread);
    }

    static inline constinit thread_local T* object = nullptr;
};

}  // namespace flashtile
