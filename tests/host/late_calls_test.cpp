// late_calls_test.cpp: a program that calls when nearly all is over: from the destructor of a static object that is
// older than the library's first call, from that of a thread_local one and from that of a pthread key.
#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <thread>

#include "host/job.h"

namespace {

using flashtile::host::Job;

// Ends the process with an error where a call goes wrong, or a refusal's words do.
void call(const char* when) {
    const Job job = Job(1, 40).run({.threads = 2});
    bool refused = false;
    try {
        flashtile::forward({.dropout = 2.0}, {}, {}, {}, {});
    } catch (const flashtile::error& error) {
        refused = std::strlen(error.what()) > 0;
    }
    if (refused && job == Job(1, 40).run({.threads = 1}) && std::strlen(flashtile::last_run()) > 0) return;
    std::fprintf(stderr, "a call from %s went wrong\n", when);
    _exit(1);
}

struct Late {
    const char* when;
    ~Late() { call(when); }
};

Late of_the_process{"a static object's destructor"};
thread_local Late of_the_thread{"a thread_local object's destructor"};
pthread_key_t key;

}  // namespace

int main() {
    pthread_key_create(&key, [](void*) { call("a pthread key's destructor"); });
    std::thread([] {
        pthread_setspecific(key, &key);
        static_cast<void>(&of_the_thread);  // older than what the call below makes, so destroyed after that
        call("a thread");
    }).join();
    static_cast<void>(&of_the_thread);
    call("main");
}
